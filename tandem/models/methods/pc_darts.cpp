#include <ATen/ATen.h>

#include "tandem/models/methods/methods.h"

namespace tandem::models::methods {
namespace {

CellLayerOptions with_part_of_channels(CellLayerOptions layers, int64_t partial) {
  layers.channels /= partial;
  return layers;
}

/// The channels of so many groups, one of each group after the other.
Tensor shuffled(const Tensor& x, int64_t groups) {
  const auto sizes = x.sizes();
  return x.reshape({sizes[0], groups, sizes[1] / groups, sizes[2], sizes[3]}).transpose(1, 2).reshape(sizes);
}

/// The first channels go through the operations, the others go by; a pooling makes them as small.
class PartialSum final : public Mixture {
 public:
  PartialSum(const MixtureOptions& mixture, const CellLayerOptions& layers)
      : Mixture(mixture.operations, with_part_of_channels(layers, mixture.partial)),
        partial_(mixture.partial),
        channels_(layers.channels / mixture.partial),
        stride_(layers.stride) {}

  /// The last column: what all of the edge counts.
  Tensor add_to(Tensor sum, const CellValue& x, const Tensor& weights) const override {
    const auto columns = weights.unbind();
    const auto& all = x.values();
    auto through = add_operations({}, x.first_channels(channels_), columns);
    auto by = all.narrow(1, channels_, all.size(1) - channels_);
    if (stride_ > 1) by = at::max_pool2d(by, stride_, stride_);
    if (!through.defined()) through = by.narrow(1, 0, channels_) * 0;
    return added(sum, shuffled(at::cat({through, by}, 1), partial_) * columns.back());
  }

 private:
  int64_t partial_, channels_, stride_;
};

/// Over the edges of each node.
Tensor softmax_of_edges(const Tensor& edges, int64_t inputs) {
  std::vector<Tensor> nodes;
  for (int64_t first = 0, count = inputs; first < edges.size(0); first += count++) {
    nodes.push_back(differentiable_log_softmax(edges.narrow(0, first, count), 0).exp());
  }
  return at::cat(nodes);
}

Tensor with_edges(const Alphas& alphas) {
  return at::cat({operation_shares(alphas), softmax_of_edges(alphas.edges, alphas.inputs).unsqueeze(1)}, 1);
}

Tensor shares_of_node(const Alphas& alphas) {
  return operation_shares(alphas) * softmax_of_edges(alphas.edges, alphas.inputs).unsqueeze(1);
}

}  // namespace

SearchMethod pc_darts() {
  return {.name = "pc-darts",
          .doc = "one of search.partial channels goes through the operations, and edges have weights",
          .weighs_edges = true,
          .is_partial = true,
          .weights = with_edges,
          .shares = shares_of_node,
          .make_mixture = mixture_of<PartialSum>};
}

}  // namespace tandem::models::methods
