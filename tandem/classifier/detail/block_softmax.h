#pragma once
#include <utility>

#include "tandem/classifier/detail/class_blocks.h"
#include "tandem/classifier/detail/score_passes.h"
#include "tandem/classifier/detail/targets.h"

namespace tandem::classifier::detail {

class FeatureSums;
class Lane;

/// One loss of one rank's classes, block by block: forward() once, then backward() as often as asked.
///
///   forward    block of weight ── GEMM ── products [c, N] ── maximum, sum of exp, target of each row
///   backward   block of weight ── GEMM ── products ── their gradient ──┬── GEMM ── adds to features' gradient [N, D]
///                                                                      └── GEMM ── weight's gradient of the block
///
/// What a block is stands in class_blocks.h, what one thread holds in lane.h, what becomes of the targets in
/// target_scores.h, and how gradients are summed in block_gradients.h.
///
/// Each thread works on a block of its own, in turn, so that none waits for another before the end; the sums over the
/// classes are kept for each and added in their order. The products live only while their block is worked on, except
/// the first ones, which stay from forward to the first backward as long as they fit into keep_bytes. With a sample
/// only its classes are worked on, whose rows are gathered block by block; the weight's gradient is then sparse, or
/// goes to the update by ids.
class BlockSoftmax {
 public:
  BlockSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
               const Scoring& scoring, const BlockOptions& options, const ClassSample* sample = nullptr);

  /// This rank's numbers of each row of `features`.
  struct OwnNumbers {
    Tensor maximum, sum, total;  // [N]; total only for smoothing
  };
  /// `sums`: also takes what these classes give to the features' gradient; no products are kept then, and no classes
  /// sampled.
  OwnNumbers forward(const Tensor& features, const Tensor& weight, FeatureSums* sums = nullptr);

  /// Gradients of this rank's features (its share) and weight. `log_sum` [N] over all ranks; `share` [N]: the loss's
  /// derivative by a row's loss; `classes`: of all ranks. With `update` the weight's gradient is not defined; without
  /// `of_features` that of the features.
  std::pair<Tensor, Tensor> backward(const Tensor& features, const Tensor& weight, const Tensor& log_sum,
                                     const Tensor& share, int64_t classes, const RowUpdate& update = {},
                                     bool of_features = true);

  const ClassBlocks& blocks() const { return blocks_; }
  const LocalTargets& targets() const { return targets_; }

 private:
  bool is_kept(ClassRange classes) const { return kept_.defined() && classes.end <= kept_.size(0); }
  /// Where the products of a block are, or are put.
  Tensor products_of(const Lane& lane, ClassRange classes) const;
  bool needs_lanes_products() const { return !kept_.defined() || kept_.size(0) < blocks_.num_classes(); }

  ClassBlocks blocks_;
  LocalTargets targets_;
  Tensor kept_;  // products of the first classes, from forward to the first backward
};

}  // namespace tandem::classifier::detail
