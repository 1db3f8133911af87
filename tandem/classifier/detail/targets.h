#pragma once
#include <span>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/classifier/scoring.h"

namespace tandem::classifier::detail {

/// A row whose target is one of this rank's classes.
struct Target {
  int64_t row, target_class;                     // class: counted from the rank's first
  int64_t place = 0;                             // of the class among those that are scored
  double feature_length = 1, weight_length = 1;  // 1 where normalised, or where nothing depends on it
  double product = 0, factor = 1;                // the score is one times the other
  double score = 0;                              // without margin
  double value = 0, slope = 1;                   // with it, and its derivative by the score
  double left_out = 0;                           // the score that stood for it where it was left out
  double radial = 0;  // derivative of the value by log |x| (and by log |w|) beyond the slope's
};

/// Ordered by class. `scored`: the classes that are, beginning with the targets in rising order; undefined: all.
/// Throws c10::TypeError when the ids are not int64, c10::ValueError for a target that is not scored.
class LocalTargets {
 public:
  LocalTargets(const Tensor& targets, int64_t first, const Tensor& features, const Tensor& weight,
               const Scoring& scoring, const Tensor& scored = {});

  int64_t counted() const { return counted_; }  // rows with a target, over all ranks
  std::span<const Target> all() const { return targets_; }
  std::span<Target> in_places(int64_t begin, int64_t end);

 private:
  void place(const Tensor& scored);

  std::vector<Target> targets_;
  int64_t counted_ = 0;
};

std::vector<double> numbers_of(const Tensor& x);

/// numbers[place - first_place] of each target, in float64.
Tensor numbers_at(const Tensor& numbers, std::span<const Target> targets, int64_t first_place);
std::vector<double> read_numbers(const Tensor& numbers, std::span<const Target> targets, int64_t first_place);

/// From the score without margin to value, slope and radial.
void apply_margin(Target& target, double score, const Scoring& scoring);

/// Entries [place - first_place, row] of a block. CPU tensors are read and written where they lie.
Tensor entries_at(const Tensor& block, std::span<const Target> targets, int64_t first_place);  // in float64
std::vector<double> read_entries(const Tensor& block, std::span<const Target> targets, int64_t first_place);
void write_entries(Tensor& block, std::span<const Target> targets, int64_t first_place,
                   const std::vector<double>& values);

/// Adds values[i] to numbers[places[i]].
void add_numbers(Tensor& numbers, const std::vector<int64_t>& places, const std::vector<double>& values);

}  // namespace tandem::classifier::detail
