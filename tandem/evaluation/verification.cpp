#include "tandem/evaluation/verification.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tandem/evaluation/detail/checks.h"
#include "tandem/evaluation/detail/pair_counts.h"

namespace tandem::evaluation {
namespace {

using detail::PairCounts;

/// The accepted pairs at each point of the curve, beginning with (0, 0).
std::vector<PairCounts> roc_points(const Tensor& scores, const Tensor& same) {
  const auto [sorted, order] = at::sort(scores, 0, true);
  const auto flags = same.index_select(0, order);
  const auto values = sorted.to(at::kDouble);
  const auto* value = values.const_data_ptr<double>();
  const auto* flag = flags.const_data_ptr<bool>();
  std::vector<PairCounts> points(1);
  PairCounts counts;
  for (int64_t i = 0; i < values.size(0); ++i) {
    ++counts.of(flag[i]);
    if (i + 1 == values.size(0) || value[i + 1] != value[i]) points.push_back(counts);
  }
  return points;
}

/// `points` without those on straight pieces between equal steps; (0, 0) and the first threshold stay.
std::vector<PairCounts> corners(const std::vector<PairCounts>& points) {
  std::vector<PairCounts> kept(points.begin(), points.begin() + 2);
  for (size_t i = 2; i < points.size(); ++i) {
    const bool is_last = i + 1 == points.size();
    if (is_last || points[i] - points[i - 1] != points[i + 1] - points[i]) kept.push_back(points[i]);
  }
  return kept;
}

/// The last of equally good points, because points rise in both counts.
PairCounts point_at(const std::vector<PairCounts>& points, double far, FarPoint point) {
  const double num = double(points.back().different);
  PairCounts best;
  double nearest = 2;
  for (const auto& counts : points) {
    const double rate = double(counts.different) / num, off = std::abs(rate - far);
    if (point == FarPoint::at_most ? rate > far : off > nearest) continue;
    best = counts;
    nearest = off;
  }
  return best;
}

}  // namespace

std::vector<double> tar_at_far(const Tensor& scores, const Tensor& same, const std::vector<double>& fars,
                               FarPoint point) {
  const at::NoGradGuard no_grad;
  const auto dtype = scores.scalar_type();
  TORCH_CHECK_TYPE(dtype == at::kFloat || dtype == at::kDouble, "tar at far: scores are ", toString(dtype),
                   ", wanted Float or Double");
  TORCH_CHECK_VALUE(scores.dim() == 1, "tar at far: scores are ", scores.sizes(), ", wanted [P]");
  detail::check_column("tar at far: same", same, at::kBool, scores.size(0));
  detail::check_rates("tar at far: fars", fars);
  TORCH_CHECK_VALUE(scores.isfinite().all().item<bool>(), "tar at far: scores are not finite, wanted numbers");
  const auto num_same = same.sum().item<int64_t>();
  TORCH_CHECK_VALUE(num_same > 0 && num_same < same.size(0), "tar at far: same pairs are ", num_same, " of ",
                    same.size(0), ", wanted some of both kinds");
  auto points = roc_points(scores, same);
  if (point == FarPoint::nearest) points = corners(points);
  std::vector<double> rates;
  for (const double far : fars) rates.push_back(double(point_at(points, far, point).same) / double(num_same));
  return rates;
}

Templates template_features(const Tensor& features, const Tensor& template_ids, const Tensor& media_ids) {
  const at::NoGradGuard no_grad;
  detail::check_features("templates: features", features);
  detail::check_column("templates: template_ids", template_ids, at::kLong, features.size(0));
  detail::check_column("templates: media_ids", media_ids, at::kLong, features.size(0));
  const auto options = features.options();
  const auto [media, medium_of, num] = at::unique_dim(at::stack({template_ids, media_ids}, 1), 0, true, true, true);
  const auto sums = at::zeros({media.size(0), features.size(1)}, options).index_add_(0, medium_of, features);
  const auto means = sums.div_(num.to(options.dtype()).unsqueeze(1));
  const auto [ids, template_of] = at::_unique(media.select(1, 0).contiguous(), true, true);
  const auto whole = at::zeros({ids.size(0), features.size(1)}, options).index_add_(0, template_of, means);
  const auto length = whole.norm(2, {1}, true);
  return {whole / at::where(length.gt(0), length, at::ones_like(length)), ids};
}

}  // namespace tandem::evaluation
