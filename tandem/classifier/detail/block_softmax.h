#pragma once
#include "tandem/classifier/detail/own_softmax.h"

namespace tandem::classifier::detail {

class FeatureSums;

/// The loss of one rank's classes, block by block.
///
///   forward    block of weight ── GEMM ── products [c, N] ── maximum, sum of exp, target of each row
///   backward   block of weight ── GEMM ── products ── their gradient ──┬── GEMM ── adds to features' gradient [N, D]
///                                                                      └── GEMM ── weight's gradient of the block
///
/// What a block is stands in class_blocks.h, what one thread holds in lane.h, what becomes of the targets in targets.h,
/// and how gradients are summed in block_gradients.h.
///
/// Each thread works on a block of its own, in turn, so that none waits for another before the end; the sums over the
/// classes are kept for each and added in their order. The products live only while their block is worked on, except
/// the first ones, which stay from forward to the first backward as long as they fit into keep_bytes. With a sample
/// only its classes are worked on, whose rows are gathered block by block; the weight's gradient is then sparse, or
/// goes to the update by ids.
class BlockSoftmax final : public OwnSoftmax {
 public:
  using OwnSoftmax::OwnSoftmax;

  OwnNumbers forward(const Tensor& features, const Tensor& weight) override {
    return forward_with(nullptr, features, weight);
  }

  /// Also takes what these classes give to the features' gradient; no products are kept then, and no classes sampled.
  OwnNumbers forward_with(FeatureSums* sums, const Tensor& features, const Tensor& weight);

  std::pair<Tensor, Tensor> backward(const Tensor& features, const Tensor& weight, const Tensor& log_sum,
                                     const Tensor& share, int64_t classes, const RowUpdate& update = {},
                                     bool of_features = true) override;
};

}  // namespace tandem::classifier::detail
