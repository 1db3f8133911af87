#pragma once
#include "tandem/classifier/detail/class_blocks.h"
#include "tandem/classifier/detail/targets.h"

namespace tandem::classifier::detail {

/// Rows of the weight.
struct OwnRows {
  Tensor exact, entering;  // in the weight's type; as they enter the products
};

/// From the gradient of what enters the products, [n, D], to that of the features, in place. `along` [n]: sums over
/// the classes of score times gradient, or of what a margin depends on a length by; `features`, `inverse` (their
/// lengths'; undefined where not normalised): of the same rows.
Tensor to_features(const ClassBlocks& blocks, Tensor gradient, Tensor along, const Tensor& features,
                   const Tensor& inverse);

/// The gradients of one backward pass, summed block by block; each lane has a sum of its own over its blocks.
class BlockGradients {
 public:
  /// With `update`, the weight's gradient is given away block by block, and room is made for one block a lane. Without
  /// `sums_features`, theirs is left out.
  BlockGradients(const ClassBlocks& blocks, LocalTargets& targets, const Tensor& features, const Tensor& weight,
                 int num_lanes, const RowUpdate& update, bool sums_features = true);

  /// What entered the products, [columns, D].
  const Tensor& inputs() const { return inputs_; }

  /// Sum over a lane's classes of score times the score's gradient, [columns].
  Tensor along_samples(int64_t lane) const { return along_samples_.select(0, lane); }

  /// The two GEMMs of a block. `products`: their gradient, 0 for the targets, which know the gradients of their values;
  /// `along_classes` [classes]: sum over the samples of score times gradient. Both are overwritten.
  void add(int64_t lane, const OwnRows& own, ClassRange classes, Tensor& products, Tensor& along_classes);

  /// From the gradient of what entered the products to that of the features, [N, D]. Call it once, after all blocks.
  Tensor of_features(const Tensor& features);

  const Tensor& of_weight() const { return of_weight_; }  // [scored, D]

 private:
  void multiply(int64_t lane, OwnRows own, const Tensor& products, const Tensor& along_classes, Tensor& of_own) const;

  const ClassBlocks& blocks_;
  LocalTargets& targets_;
  const RowUpdate& update_;
  Tensor inputs_;
  Tensor of_inputs_;      // [lanes, columns, D]; undefined: they are left out
  Tensor of_weight_;      // [scored, D], or [lanes * block, D] with an update
  Tensor along_samples_;  // [lanes, columns]
  Tensor along_rows_;     // the targets' part of it, [N] in float64
};

}  // namespace tandem::classifier::detail
