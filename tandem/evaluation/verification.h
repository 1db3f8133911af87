#pragma once
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::evaluation {

// 1:1 comparison of given pairs, as IJB does it. Not collective: the pairs must fit one rank.

/// The point of the ROC curve that is used for a false accept rate.
enum class FarPoint {
  at_most,  // the greatest true accept rate whose false accept rate is not above the given one
  nearest,  // the point nearest to it, above or below, as in IJB's published numbers; of equals the last
};

/// True accept rate at each of `fars` (0..1), from the pairs' scores. Equal scores are accepted together.
///   scores  [P]  float32 or float64, finite, higher for more alike     same  [P]  bool, some of both
/// `nearest` considers the corners of the curve only and ignores points on its straight pieces, like scikit-learn's
/// roc_curve, with which these numbers are published. With few impostor pairs it can be far off; prefer `at_most`.
/// Memory: 60 bytes a pair. Throws c10::TypeError, c10::ValueError.
/// Source: InsightFace, recognition/_evaluation_/ijb/ijb_11.py.
std::vector<double> tar_at_far(const Tensor& scores, const Tensor& same, const std::vector<double>& fars,
                               FarPoint point = FarPoint::at_most);

struct Templates {
  Tensor features;  // [T, D], rows of length 1 (0 if the sum is 0)
  Tensor ids;       // [T] int64, ascending
};

/// IJB's templates: features are averaged per medium (a still, or the frames of one video), then summed over a
/// template's media and normalised.
///   features  [N, D]  float32 or float64     template_ids, media_ids  [N]  int64; a medium belongs to its template
/// Memory: the features of all media and templates. Throws c10::TypeError, c10::ValueError.
Templates template_features(const Tensor& features, const Tensor& template_ids, const Tensor& media_ids);

}  // namespace tandem::evaluation
