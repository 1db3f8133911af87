#pragma once
#include <utility>

#include "tandem/classifier/detail/class_blocks.h"
#include "tandem/classifier/detail/targets.h"

namespace tandem::classifier::detail {

/// The naive form of BlockSoftmax: all scores of this rank's classes at once, whose gradient comes from elsewhere.
class WholeSoftmax {
 public:
  WholeSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
               const Scoring& scoring);

  /// All scores with margin, [C_local, N].
  Tensor forward(const Tensor& features, const Tensor& weight);

  /// Gradients of features and weight from that of the scores. Throws c10::Error when it runs a second time.
  std::pair<Tensor, Tensor> backward(const Tensor& features, const Tensor& weight, const Tensor& gradient);

  const LocalTargets& targets() const { return targets_; }

 private:
  ClassRange all() const { return {0, blocks_.num_classes()}; }

  ClassBlocks blocks_;
  LocalTargets targets_;
  Tensor products_;  // [C_local, columns], from forward to backward
};

}  // namespace tandem::classifier::detail
