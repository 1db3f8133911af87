#pragma once
#include <cstdint>
#include <optional>

#include "tandem/base/tensor.h"

namespace tandem::classifier {

/// Each step scores only some of the classes (PartialFC): those that are some row's target, and of the others each with
/// a chance of `rate`.
struct Sampling {
  double rate = 1.0;          // (0, 1]
  bool is_corrected = false;  // the others' exponentials count 1 / rate times: the expected sum is that of all classes
  std::optional<int64_t> scored = {};  // so many classes, targets included, instead of a draw: to rehearse a step
};

/// A step draws at least and at most so many of `count` classes that are no targets. More, or fewer, are drawn in one
/// of 10^10 steps (Bernstein's inequality).
struct DrawRange {
  int64_t least = 0, most = 0;
};
DrawRange draws_of(double rate, int64_t count);

/// What one rank scores in one step.
struct ClassSample {
  Tensor ids;  // [n] int64 on the CPU, counted from the rank's first class: the targets, then the others; each rising
  int64_t num_targets = 0;  // how many of them are targets
  double log_weight = 0;    // added to the scores of the others
};

/// The classes first .. first + count - 1 of one step. Whether a class that is no target is in depends on (seed, step,
/// global id) alone: the ranks together hold the same set for any number of them.
///   targets  [N] int64 global ids of the whole batch, -1 or another rank's count for nothing here
/// Not collective. Time: a random number a class. Throws c10::ValueError for a rate that is none.
/// Source: An et al. 2022, Killing two birds with one stone (arXiv:2203.15565); the correction: Jean et al. 2014
/// (arXiv:1412.2007), section 3.
ClassSample sample_classes(const Sampling& sampling, uint64_t seed, int64_t step, int64_t first, int64_t count,
                           const Tensor& targets);

}  // namespace tandem::classifier
