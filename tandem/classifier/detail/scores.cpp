#include "tandem/classifier/detail/scores.h"

#include <ATen/ATen.h>

#include "tandem/memory/meter.h"

namespace tandem::classifier::detail {
namespace {

// A zero vector has no direction: its cosine is 0, its gradient finite.
constexpr double kSmallestNorm = 1e-12;

Tensor inverse_norms(const Tensor& rows) { return rows.norm(2, {1}, true).clamp_min_(kSmallestNorm).reciprocal_(); }

/// gradient -= (gradient . direction) direction, row by row, where direction = rows * inverse: what normalising leaves.
void project_out(Tensor& gradient, const Tensor& rows, const Tensor& inverse) {
  const auto along = at::bmm(gradient.unsqueeze(1), rows.unsqueeze(2)).view({-1, 1});
  gradient.addcmul_(rows, along.mul_(inverse).mul_(inverse), -1);
}

}  // namespace

ScoreParts forward_scores(const Tensor& features, const Tensor& weight, const Scoring& scoring) {
  ScoreParts parts;
  parts.features = features;
  if (scoring.normalised) {
    parts.inverse_feature_norms = inverse_norms(features);
    parts.inverse_weight_norms = inverse_norms(weight);
    parts.features = features * parts.inverse_feature_norms;
  }
  parts.scores = at::mm(weight, parts.features.t());
  if (scoring.normalised) {
    parts.scores.mul_(parts.inverse_weight_norms * scoring.scale);
  } else if (scoring.scale != 1.0) {
    parts.scores.mul_(scoring.scale);
  }
  return parts;
}

std::pair<Tensor, Tensor> backward_scores(const Tensor& score_gradient, const ScoreParts& parts, const Tensor& weight,
                                          const Scoring& scoring) {
  // From here on the gradient is that of w.x (normalised: of w.x/|x|), so that no scaled copy of the weight is needed.
  const auto product_gradient = scoring.normalised
                                    ? score_gradient.mul_(parts.inverse_weight_norms * scoring.scale)
                                    : (scoring.scale == 1.0 ? score_gradient : score_gradient.mul_(scoring.scale));
  auto feature_gradient = at::mm(product_gradient.t(), weight);
  Tensor weight_gradient;
  {
    const memory::Scope scope(memory::Category::gradients);
    weight_gradient = at::mm(product_gradient, parts.features);
  }
  if (!scoring.normalised) return {feature_gradient, weight_gradient};
  // d cos/dw = (x/|x| - cos w/|w|) / |w|: the part of the gradient along w goes.
  project_out(weight_gradient, weight, parts.inverse_weight_norms);
  project_out(feature_gradient, parts.features, at::ones_like(parts.inverse_feature_norms));
  feature_gradient.mul_(parts.inverse_feature_norms);
  return {feature_gradient, weight_gradient};
}

LocalTargets find_targets(const Tensor& targets, int64_t first, int64_t local_classes) {
  TORCH_CHECK_TYPE(targets.scalar_type() == at::kLong, "softmax loss: targets are ", targets.scalar_type(),
                   ", wanted int64");
  LocalTargets found;
  const auto here = targets.ge(first).logical_and_(targets.lt(first + local_classes));
  found.rows = here.nonzero().view({-1});
  found.classes = targets.index_select(0, found.rows).sub_(first);
  found.counted = targets.ne(-1).sum().item<int64_t>();
  return found;
}

}  // namespace tandem::classifier::detail
