#include "tandem/models/cells/supernet.h"

#include <array>

#include "tandem/models/cells/search_alphas.h"
#include "tandem/models/cells/search_nodes.h"

namespace tandem::models {
namespace {

using memory::Flow;

// The places in what a block passes on. The output before the last is missing after a stem whose output is both.
enum Place : size_t { kLatest, kNormal, kReduce, kEarlier };

class SearchCell : public torch::nn::Module {
 public:
  SearchCell(const SearchCellOptions& options, const CellInputs& inputs) : Module("Cell") {
    const auto& layers = options.layers;
    inputs_ = {register_module("preprocess0", inputs.is_earlier_larger ? make_halving(inputs.earlier, layers)
                                                                       : make_projection(inputs.earlier, layers)),
               register_module("preprocess1", make_projection(inputs.latest, layers))};
    nodes_ = register_module("_ops", std::make_shared<SearchNodes>(options));
  }

  Tensor forward(const Tensor& earlier, const Tensor& latest, const Tensor& weights) const {
    return nodes_->forward({CellValue(inputs_[0]->forward(earlier)), CellValue(inputs_[1]->forward(latest))}, weights);
  }

 private:
  std::array<std::shared_ptr<CellLayer>, 2> inputs_;
  std::shared_ptr<SearchNodes> nodes_;
};

std::string genotype_text(const Cells& cells) { return to_text(Genotype{cells.at(0), cells.at(1)}); }

Cells genotype_cells(std::string_view text, std::string_view source) {
  auto genotype = parse_genotype(text, source);
  return {std::move(genotype.normal), std::move(genotype.reduce)};
}

std::shared_ptr<Backbone> make_supernet(const Space& space, const ModelOptions& options) {
  return std::make_shared<Supernet>(space, options);
}

}  // namespace

const Skeleton& darts_skeleton() {
  static constexpr Skeleton kSkeleton = {.inputs = kCellInputs,
                                         .gives_nodes = true,
                                         .make = make_supernet,
                                         .features = Supernet::features,
                                         .text = genotype_text,
                                         .parse = genotype_cells};
  return kSkeleton;
}

Supernet::Supernet(const Space& space, const ModelOptions& options)
    : CellNetwork("Supernet", {space.nodes, space.nodes}, options) {
  const auto& method = checked_method(options);
  const auto alphas = register_module(std::string(kAlphas), std::make_shared<SearchAlphas>(space, method));
  add_stem(alphas, [alphas](Flow outputs) {
    auto weights = alphas->weights();
    Flow flow = {std::move(outputs[0]), std::move(weights[0]), std::move(weights[1])};
    if (outputs.size() > 1) flow.push_back(std::move(outputs[1]));
    return flow;
  });
  for (int64_t i = 0; i < options.cells; ++i) {
    if (!holds_next_block()) continue;
    const bool reduces = halves(i), is_last = i + 1 == options.cells;
    SearchCellOptions of_cell = {.space = space,
                                 .cell = space.cells[reduces ? 1 : 0],
                                 .method = method,
                                 .partial = options.search_partial,
                                 .halved = reduces ? kCellInputs : 0,
                                 .layers = layers_of(i)};
    of_cell.layers.is_affine = false;
    of_cell.layers.normalises_pools = true;
    const auto cell = std::make_shared<SearchCell>(of_cell, inputs_of(i));
    add_cell(i, cell, [cell, reduces, is_last](const Flow& flow) {
      const auto& earlier = flow.size() > kEarlier ? flow[kEarlier] : flow[kLatest];
      auto output = cell->forward(earlier, flow[kLatest], flow[reduces ? kReduce : kNormal]);
      return is_last ? Flow{std::move(output)} : Flow{std::move(output), flow[kNormal], flow[kReduce], flow[kLatest]};
    });
  }
  add_head();
  initialize(*this, options.seed);
}

int64_t Supernet::features(const Space& space, const ModelOptions& options) {
  return CellNetwork::features({space.nodes, space.nodes}, options);
}

}  // namespace tandem::models
