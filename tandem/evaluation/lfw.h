#pragma once
#include "tandem/base/tensor.h"

namespace tandem::evaluation {

struct LfwOptions {
  int num_folds = 10;
  double far = 1e-3;  // false accept rate of `val`, above 0
};

struct LfwScores {
  double accuracy = 0, accuracy_deviation = 0;  // mean and standard deviation (of the folds, not of a sample)
  double val = 0, val_deviation = 0;            // true accept rate at the threshold that gives `far` elsewhere
  double far = 0;                               // mean false accept rate met there
};

/// Labelled Faces in the Wild: pairs are called the same where the squared distance of the normalised features is below
/// a threshold, which is chosen on the other folds. Folds are consecutive, as split_sizes() cuts them.
///
/// Accuracy: the best of 0, 0.01, .. 3.99, the first of equals. VAL: the smallest of 0, 0.001, .. 3.999 at which the
/// rate on the other folds reaches `far`, moved back on the straight line to the threshold before it; 0 when none does.
/// (The original asks SciPy for that line, whose present versions refuse rates that repeat.)
///   first, second  [P, D]  float32 or float64; pair i is first[i], second[i]     same  [P]  bool
/// Local. Memory: 24 bytes an element of `first`. Throws c10::TypeError, c10::ValueError (shapes, folds without both
/// kinds of pair). Source: Huang et al. 2007, LFW; FaceNet's and InsightFace's verification.py.
LfwScores lfw(const Tensor& first, const Tensor& second, const Tensor& same, const LfwOptions& options = {});

}  // namespace tandem::evaluation
