#pragma once
#include <vector>

#include "tandem/classifier/detail/block_plan.h"

namespace tandem::classifier::detail {

/// Consecutive classes among those that are scored.
struct ClassRange {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// One loss as its blocks see it: the classes of each block, and what makes a block's products scores. The features
/// enter the products scaled, and divided by their lengths where they are normalised; a class's factor is 1 divided by
/// the length of its weight, or 1.
class ClassBlocks {
 public:
  ClassBlocks(const Tensor& features, const Tensor& weight, const Scoring& scoring, const BlockOptions& options,
              const ClassSample* sample);

  const Scoring& scoring() const { return scoring_; }
  const BlockPlan& plan() const { return plan_; }
  int64_t num_samples() const { return num_samples_; }
  int64_t num_classes() const { return num_classes_; }  // that are scored
  bool is_rounded() const { return plan_.products == at::kBFloat16; }
  at::TensorOptions product_options(const Tensor& features) const { return features.options().dtype(plan_.products); }

  /// Scores above it count as 0.
  double filter() const;

  /// Whether a target's score depends on a length by more than its slope says.
  bool has_radial() const;

  /// No block holds both targets of a sample and other classes.
  std::vector<ClassRange> ranges() const;

  /// Added to the scores of the sampled classes that are no targets; 0: nothing is.
  double log_weight() const { return log_weight_; }
  double log_weight_of(ClassRange classes) const { return classes.begin < num_targets_ ? 0.0 : log_weight_; }

  /// Which rows of the weight these classes are.
  Rows rows_of(ClassRange classes) const;

  /// From the scored rows' gradient to that of the whole weight; sparse where classes are sampled.
  Tensor spread(const Tensor& gradient, const Tensor& weight) const;

  /// Measures the features where they are normalised, and makes room for the weight's lengths.
  void measure_features(const Tensor& features, const Tensor& weight);
  const Tensor& inverse_features() const { return inverse_features_; }  // [N]; undefined where not normalised

  /// 1 / the lengths of these classes' weights, to be filled; undefined where not normalised.
  Tensor inverse_weight_of(ClassRange classes) const;
  Tensor factors_of(ClassRange classes, const at::TensorOptions& options) const;  // [classes]

  /// The features as they enter the products, [columns, D] in the products' type; rows of zeros behind them.
  Tensor directions_of(const Tensor& features) const;

  /// One number a sample, zeros behind them, [columns].
  Tensor padded(const Tensor& numbers) const;

 private:
  Scoring scoring_;
  Tensor ids_;  // [scored], where classes are sampled
  int64_t num_targets_ = 0;
  double log_weight_ = 0;
  int64_t num_samples_, num_classes_;
  BlockPlan plan_;
  Tensor inverse_features_, inverse_weight_;  // [N], [scored]
};

}  // namespace tandem::classifier::detail
