#pragma once
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::evaluation {

// 1:1 comparison of given pairs, as IJB does it. Local: the pairs fit one rank.

/// Which point of the ROC curve is taken for a false accept rate.
enum class FarPoint {
  at_most,  // the greatest true accept rate whose false accept rate is not above the one asked for
  nearest,  // that of the point nearest to it, above or below, as in IJB's published numbers; of equals the last
};

/// True accept rate at each of `fars` (0..1), from the pairs' scores. Equal scores are accepted together.
///   scores  [P]  float32 or float64, finite, higher for more alike     same  [P]  bool, some of both
/// `nearest` takes corners only: points on a straight piece of the curve count as left out, as scikit-learn's roc_curve
/// does, through which these numbers are published. On few impostors it can be far off; prefer `at_most`.
/// Memory: 60 bytes a pair. Throws c10::TypeError, c10::ValueError.
/// Source: InsightFace, recognition/_evaluation_/ijb/ijb_11.py.
std::vector<double> tar_at_far(const Tensor& scores, const Tensor& same, const std::vector<double>& fars,
                               FarPoint point = FarPoint::at_most);

struct Templates {
  Tensor features;  // [T, D], of length 1 (0 where the sum is)
  Tensor ids;       // [T] int64, rising
};

/// IJB's templates: the mean of the features of each medium (a still, or the frames of one video), the sum over a
/// template's media, normalised.
///   features  [N, D]  float32 or float64     template_ids, media_ids  [N]  int64; a medium belongs to its template
/// Memory: the features of all media and templates. Throws c10::TypeError, c10::ValueError.
Templates template_features(const Tensor& features, const Tensor& template_ids, const Tensor& media_ids);

}  // namespace tandem::evaluation
