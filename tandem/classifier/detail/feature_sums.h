#pragma once
#include "tandem/classifier/detail/class_blocks.h"
#include "tandem/classifier/detail/targets.h"

namespace tandem::classifier::detail {

/// What one rank's classes, but for the targets, give to the gradient of what enters the products, before the sums over
/// all ranks are known: of each row the sum over the classes of
///
///   exp(score - maximum) * d score / d input      as the softmax weighs them
///   d score / d input                             evenly, for label smoothing
///
/// Each lane has sums of its own, which are scaled when its maximum rises. Scores above the filter give nothing.
class FeatureSums {
 public:
  FeatureSums(const ClassBlocks& blocks, const Tensor& features);

  /// Adds a block. `products` [classes, columns]: overwritten; what stands in the targets' places does not matter.
  /// `entering`: the rows of the weight in them. `maximum` [columns]: of the lane, this block included.
  void add(int64_t lane, const Tensor& entering, Tensor& products, const Tensor& factors, const Tensor& maximum,
           const LocalTargets& targets, ClassRange classes);

  /// Adds up the lanes. `maximum` [columns]: of all.
  void end(const Tensor& maximum);

  /// [N, D] each, after end(). The second is undefined without smoothing. Gives them away.
  Tensor take_weighed() { return std::move(weighed_); }
  Tensor take_even() { return std::move(even_); }

 private:
  void add_product(const Tensor& coefficients, const Tensor& entering, Tensor sum) const;

  const ClassBlocks& blocks_;
  Tensor maximum_;         // [lanes, columns]
  Tensor ones_, nothing_;  // [columns]
  Tensor scratch_;         // [lanes, columns]
  Tensor weighed_, even_;  // [lanes, columns, D]
};

}  // namespace tandem::classifier::detail
