#pragma once
#include "tandem/base/tensor.h"

namespace tandem::evaluation {

struct LfwOptions {
  int num_folds = 10;
  double far = 1e-3;  // false accept rate of `val`, above 0
};

struct LfwScores {
  double accuracy = 0, accuracy_deviation = 0;  // mean and population standard deviation over the folds
  double val = 0, val_deviation = 0;            // true accept rate at the threshold that gives `far` on the other folds
  double far = 0;                               // mean false accept rate at these thresholds
};

/// Labelled Faces in the Wild: a pair is called the same if the squared distance of its normalised features is below a
/// threshold, which is chosen on the other folds. Folds are consecutive, as split_sizes() cuts them.
///
/// Accuracy uses the best of the thresholds 0, 0.01, .. 3.99; of equals the first. VAL takes the smallest of 0, 0.001,
/// .. 3.999 at which the false accept rate on the other folds reaches `far`, and interpolates linearly between it and
/// the threshold before; the threshold is 0 if none reaches `far`. (The original interpolates with SciPy, whose present
/// versions reject repeated rates.)
///   first, second  [P, D]  float32 or float64; pair i is first[i], second[i]     same  [P]  bool
/// Not collective. Memory: 24 bytes an element of `first`. Throws c10::TypeError, c10::ValueError (shapes, folds
/// without both kinds of pair). Source: Huang et al. 2007, LFW; FaceNet's and InsightFace's verification.py.
LfwScores lfw(const Tensor& first, const Tensor& second, const Tensor& same, const LfwOptions& options = {});

}  // namespace tandem::evaluation
