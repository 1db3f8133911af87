#include "tandem/classifier/detail/row_losses.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <limits>
#include <span>

#include "tandem/classifier/detail/on_device.h"
#include "tandem/comm/collectives.h"

namespace tandem::classifier::detail {
namespace {

double lowest_of(at::ScalarType type) {
  return type == at::kFloat ? std::numeric_limits<float>::lowest() : std::numeric_limits<double>::lowest();
}

}  // namespace

void check_arguments(const Tensor& features, const Tensor& weight, const Tensor& targets, const Scoring& scoring) {
  TORCH_CHECK_VALUE(features.dim() == 2 && weight.dim() == 2 && features.size(1) == weight.size(1),
                    "softmax loss: features are ", features.sizes(), " and weight ", weight.sizes(),
                    ", wanted [N, D] and [C_local, D]");
  TORCH_CHECK_VALUE(targets.dim() == 1 && targets.size(0) == features.size(0), "softmax loss: targets are ",
                    targets.sizes(), ", wanted [", features.size(0), "], one a row of features");
  TORCH_CHECK_TYPE(targets.scalar_type() == at::kLong, "softmax loss: targets are ", targets.scalar_type(),
                   ", wanted int64");
  TORCH_CHECK_TYPE(features.scalar_type() == weight.scalar_type(), "softmax loss: features are ",
                   features.scalar_type(), " and weight ", weight.scalar_type(), ", wanted the same");
  check_scoring(scoring);
}

Tensor pack(const OwnSoftmax::OwnNumbers& own, const LocalTargets& targets) {
  const double lowest = lowest_of(own.sum.scalar_type());
  auto packed = at::empty({1, own.total.defined() ? 4 : 3, own.sum.size(0)}, own.sum.options());
  packed[0][0].copy_(own.maximum);
  packed[0][1].copy_(own.sum);
  packed[0][2].fill_(lowest);
  targets.write_values(packed[0][2]);
  if (own.total.defined()) packed[0][3].copy_(own.total);
  return packed;
}

RowNumbers merge_parts(const Tensor& all) {
  RowNumbers rows;
  const auto maxima = all.select(1, 0);
  const auto maximum = maxima.amax({0});
  rows.log_sum = (all.select(1, 1) * (maxima - maximum).exp_()).sum({0}).log_().add_(maximum);
  const auto scores = all.select(1, 2);
  const auto is_elsewhere = scores.eq(lowest_of(all.scalar_type()));
  rows.target = scores.masked_fill(is_elsewhere, 0).sum({0});
  rows.target.masked_fill_(is_elsewhere.all(0), std::numeric_limits<double>::quiet_NaN());
  if (all.size(1) == 4) rows.total = all.select(1, 3).sum({0});
  return rows;
}

RowNumbers merge_ranks(const OwnSoftmax::OwnNumbers& own, const LocalTargets& targets, comm::ProcessGroup& group) {
  return merge_parts(comm::all_gather(pack(own, targets), group, 0, std::vector<int64_t>(group.size(), 1)));
}

void check_targets(const Tensor& targets, int64_t classes) {
  const auto ids = targets.cpu().contiguous();
  const std::span all(ids.const_data_ptr<int64_t>(), static_cast<size_t>(ids.numel()));
  const auto lost = std::ranges::find_if(all, [&](int64_t id) { return id < -1 || id >= classes; });
  TORCH_CHECK_INDEX(lost == all.end(), "softmax loss: targets[", lost - all.begin(), "] is ", *lost,
                    ", which no rank's classes hold: write -1 to leave a row out, or raise classes");
}

Tensor shares_of(const Tensor& targets, int64_t counted, const at::TensorOptions& options) {
  const auto counts = targets.ne(-1).to(c10::typeMetaToScalarType(options.dtype()));
  return on_device(counts.div_(std::max<int64_t>(counted, 1)), options.device());
}

Tensor mean_loss(const RowNumbers& rows, const Tensor& share, double smoothing, int64_t classes) {
  auto losses = rows.log_sum - rows.target * (1.0 - smoothing);
  if (rows.total.defined()) losses.sub_(rows.total, smoothing / static_cast<double>(classes));
  return at::where(share.ne(0), losses * share, at::zeros({}, losses.options())).sum();
}

}  // namespace tandem::classifier::detail
