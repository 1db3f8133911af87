#include "tandem/models/cells/bench_201_supernet.h"

#include "tandem/models/cells/search_alphas.h"
#include "tandem/models/cells/search_nodes.h"

namespace tandem::models {
namespace {

using memory::Flow;

class Bench201SearchCell : public torch::nn::Module {
 public:
  explicit Bench201SearchCell(const SearchCellOptions& options) : torch::nn::Module("SearchCell") {
    nodes_ = register_module("edges", std::make_shared<SearchNodes>(options));
  }

  Tensor forward(const Tensor& x, const Tensor& weights) const { return nodes_->forward({CellValue(x)}, weights); }

 private:
  std::shared_ptr<SearchNodes> nodes_;
};

std::string cell_text(const Cells& cells) { return to_bench_201_text(cells.at(0)); }

Cells cell_of_text(std::string_view text, std::string_view source) { return {parse_bench_201(text, source)}; }

std::shared_ptr<Backbone> make_bench_201_supernet(const Space& space, const ModelOptions& options) {
  return std::make_shared<Bench201Supernet>(space, options);
}

int64_t features_of(const Space& /*space*/, const ModelOptions& options) { return Bench201Chain::features(options); }

}  // namespace

const Skeleton& bench_201_skeleton() {
  static constexpr Skeleton kSkeleton = {.inputs = 1,
                                         .gives_nodes = false,
                                         .make = make_bench_201_supernet,
                                         .features = features_of,
                                         .text = cell_text,
                                         .parse = cell_of_text};
  return kSkeleton;
}

Bench201Supernet::Bench201Supernet(const Space& space, const ModelOptions& options)
    : Bench201Chain("Bench201Supernet", options) {
  const auto& method = checked_method(options);
  const auto alphas = register_module(std::string(kAlphas), std::make_shared<SearchAlphas>(space, method));
  const auto with_weights = [alphas](const Flow& x) { return Flow{x[0], alphas->weights()[0]}; };
  add_blocks(alphas, with_weights, [&](int64_t block, const CellLayerOptions& layers) -> CellBlock {
    SearchCellOptions of_cell = {
        .space = space, .cell = space.cells[0], .method = method, .partial = options.search_partial, .layers = layers};
    of_cell.layers.is_affine = false;
    const auto cell = std::make_shared<Bench201SearchCell>(of_cell);
    return {cell, [cell, ends = is_last(block)](const Flow& x) {
              auto output = cell->forward(x[0], x[1]);
              return ends ? Flow{std::move(output)} : Flow{std::move(output), x[1]};
            }};
  });
  initialize(*this, options.seed);
}

}  // namespace tandem::models
