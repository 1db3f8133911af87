#include "tandem/models/cells/supernet.h"

#include <ATen/ATen.h>

#include <array>

#include "tandem/base/rng.h"
#include "tandem/base/tangent.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

using memory::Flow;

constexpr double kDeviation = 1e-3;

// The places in what a block passes on. The output before the last is missing after a stem whose output is both.
enum Place : size_t { kLatest, kNormal, kReduce, kEarlier };

/// The numbers whose softmax are the weights of operations.
class AlphasOfSpace : public Layer {
 public:
  explicit AlphasOfSpace(const Space& space) : Layer("Alphas") {
    normal_ = register_parameter("normal", at::empty({space.edges(), space.normal.operations()}));
    reduce_ = register_parameter("reduce", at::empty({space.edges(), space.reduce.operations()}));
  }

  Flow weights() const {
    return {differentiable_log_softmax(normal_, 1).exp(), differentiable_log_softmax(reduce_, 1).exp()};
  }

  void initialize(uint64_t seed, const std::string& name) override {
    const at::NoGradGuard no_grad;
    fill_normal_(normal_, kDeviation, seed, stream_of(name + ".normal"));
    fill_normal_(reduce_, kDeviation, seed, stream_of(name + ".reduce"));
  }

 private:
  Tensor normal_, reduce_;
};

struct WeighedOperation {
  int64_t place;  // among those of its edge
  std::shared_ptr<CellLayer> layer;
};

/// One edge: the sum of its operations, each times its weight.
class Mixture : public torch::nn::Module {
 public:
  Mixture(const std::vector<std::string_view>& names, const CellLayerOptions& options) : Module("MixedOp") {
    const auto list = register_module("_ops", std::make_shared<torch::nn::Module>("ModuleList"));
    for (size_t i = 0; i < names.size(); ++i) {
      const auto layer = list->register_module(std::to_string(i), make_operation(names[i], options));
      // Zeros add nothing; their weight counts through the others' alone.
      if (names[i] != kNoOperation) operations_.push_back({static_cast<int64_t>(i), layer});
    }
  }

  /// Adds to `sum`, which is undefined at first. `weights`: one a name.
  Tensor add_to(Tensor sum, const CellValue& x, const std::vector<Tensor>& weights) const {
    for (const auto& [place, layer] : operations_) {
      auto value = layer->scaled(x, weights[place]);
      sum = sum.defined() ? sum + value : std::move(value);
    }
    return sum;
  }

 private:
  std::vector<WeighedOperation> operations_;
};

class SearchCell : public torch::nn::Module {
 public:
  SearchCell(const Space& space, bool halves, const CellInputs& inputs, CellLayerOptions options)
      : Module("Cell"), nodes_(space.nodes) {
    inputs_ = {register_module("preprocess0", inputs.is_earlier_larger ? make_halving(inputs.earlier, options)
                                                                       : make_projection(inputs.earlier, options)),
               register_module("preprocess1", make_projection(inputs.latest, options))};
    const auto& cell = halves ? space.reduce : space.normal;
    const auto list = register_module("_ops", std::make_shared<torch::nn::Module>("ModuleList"));
    for (int64_t node = 0; node < nodes_; ++node) {
      for (int64_t input = 0; input < kCellInputs + node; ++input) {
        const auto edge = edges_.size();
        options.stride = halves && input < kCellInputs ? 2 : 1;
        edges_.push_back(
            list->register_module(std::to_string(edge), std::make_shared<Mixture>(cell.edges[edge], options)));
      }
    }
  }

  Tensor forward(const Tensor& earlier, const Tensor& latest, const Tensor& weights) const {
    std::vector<CellValue> values = {CellValue(inputs_[0]->forward(earlier)), CellValue(inputs_[1]->forward(latest))};
    const auto of_edges = weights.unbind();
    size_t edge = 0;
    for (int64_t node = 0; node < nodes_; ++node) {
      Tensor sum;
      for (size_t input = 0; input < kCellInputs + static_cast<size_t>(node); ++input, ++edge) {
        sum = edges_[edge]->add_to(std::move(sum), values[input], of_edges[edge].unbind());
      }
      values.emplace_back(std::move(sum));
    }
    std::vector<Tensor> outputs;
    for (size_t i = kCellInputs; i < values.size(); ++i) outputs.push_back(values[i].values());
    return at::cat(outputs, 1);
  }

 private:
  int64_t nodes_;
  std::array<std::shared_ptr<CellLayer>, 2> inputs_;
  std::vector<std::shared_ptr<Mixture>> edges_;
};

}  // namespace

Supernet::Supernet(const Space& space, const ModelOptions& options)
    : CellNetwork("Supernet", {space.nodes, space.nodes}, options) {
  const auto alphas = register_module(std::string(kAlphas), std::make_shared<AlphasOfSpace>(space));
  add_stem(alphas, [alphas](Flow outputs) {
    auto weights = alphas->weights();
    Flow flow = {std::move(outputs[0]), std::move(weights[0]), std::move(weights[1])};
    if (outputs.size() > 1) flow.push_back(std::move(outputs[1]));
    return flow;
  });
  for (int64_t i = 0; i < options.cells; ++i) {
    if (!holds_next_block()) continue;
    auto layers = layers_of(i);
    layers.is_affine = false;
    layers.normalises_pools = true;
    const bool reduces = halves(i), is_last = i + 1 == options.cells;
    const auto cell = std::make_shared<SearchCell>(space, reduces, inputs_of(i), layers);
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
