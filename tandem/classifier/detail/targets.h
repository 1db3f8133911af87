#pragma once
#include <span>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/classifier/scoring.h"

namespace tandem::classifier::detail {

/// A row whose target is one of this rank's classes.
struct Target {
  int64_t row, target_class;                     // class: its place here
  double feature_length = 1, weight_length = 1;  // 1 where normalised, or where nothing depends on it
  double factor = 1;                             // from product to score
  double score = 0;                              // without margin
  double value = 0, slope = 1;                   // with it, and its derivative by the score
  double radial = 0;  // derivative of the value by log |x| (and by log |w|) beyond the slope's
};

/// Ordered by class. Throws c10::TypeError when the ids are not int64.
class LocalTargets {
 public:
  LocalTargets(const Tensor& targets, int64_t first, const Tensor& features, const Tensor& weight,
               const Scoring& scoring);

  int64_t counted() const { return counted_; }  // rows with a target, over all ranks
  std::span<const Target> all() const { return targets_; }
  std::span<Target> in_classes(int64_t begin, int64_t end);

 private:
  std::vector<Target> targets_;
  int64_t counted_ = 0;
};

double read_number(const Tensor& numbers, int64_t place);

/// From the score without margin to value, slope and radial.
void apply_margin(Target& target, double score, const Scoring& scoring);

/// Entries [class - first_class, row] of a block. CPU tensors are read and written where they lie.
std::vector<double> read_entries(const Tensor& block, std::span<const Target> targets, int64_t first_class);
void write_entries(Tensor& block, std::span<const Target> targets, int64_t first_class,
                   const std::vector<double>& values);

}  // namespace tandem::classifier::detail
