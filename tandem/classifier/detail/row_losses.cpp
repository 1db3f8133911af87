#include "tandem/classifier/detail/row_losses.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <limits>

#include "tandem/comm/collectives.h"

namespace tandem::classifier::detail {
namespace {

double lowest_of(at::ScalarType type) {
  return type == at::kFloat ? std::numeric_limits<float>::lowest() : std::numeric_limits<double>::lowest();
}

void put_target_scores(Tensor line, const LocalTargets& targets) {
  std::vector<int64_t> rows;
  std::vector<double> values;
  for (const auto& target : targets.all()) {
    rows.push_back(target.row);
    values.push_back(target.value);
  }
  const auto index = at::tensor(rows, at::kLong).to(line.device());
  line.index_put_({index}, at::tensor(values, at::kDouble).to(line.options()));
}

}  // namespace

void check_arguments(const Tensor& features, const Tensor& weight, const Tensor& targets, const Scoring& scoring) {
  TORCH_CHECK_VALUE(features.dim() == 2 && weight.dim() == 2 && features.size(1) == weight.size(1),
                    "softmax loss: features are ", features.sizes(), " and weight ", weight.sizes(),
                    ", wanted [N, D] and [C_local, D]");
  TORCH_CHECK_VALUE(targets.dim() == 1 && targets.size(0) == features.size(0), "softmax loss: targets are ",
                    targets.sizes(), ", wanted [", features.size(0), "], one a row of features");
  TORCH_CHECK_TYPE(features.scalar_type() == weight.scalar_type(), "softmax loss: features are ",
                   features.scalar_type(), " and weight ", weight.scalar_type(), ", wanted the same");
  check_scoring(scoring);
}

Tensor pack(const BlockSoftmax::OwnNumbers& own, const LocalTargets& targets) {
  const double lowest = lowest_of(own.sum.scalar_type());
  auto packed = at::empty({1, own.total.defined() ? 4 : 3, own.sum.size(0)}, own.sum.options());
  packed[0][0].copy_(own.maximum);
  packed[0][1].copy_(own.sum);
  packed[0][2].fill_(lowest);
  put_target_scores(packed[0][2], targets);
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
  rows.has_owner = is_elsewhere.logical_not().any(0);
  rows.target = scores.masked_fill(is_elsewhere, 0).sum({0});
  if (all.size(1) == 4) rows.total = all.select(1, 3).sum({0});
  return rows;
}

RowNumbers merge_ranks(const BlockSoftmax::OwnNumbers& own, const LocalTargets& targets, comm::ProcessGroup& group) {
  return merge_parts(comm::all_gather(pack(own, targets), group, 0, std::vector<int64_t>(group.size(), 1)));
}

void check_owners(const Tensor& targets, const Tensor& has_owner) {
  const auto lost = has_owner.logical_not().logical_and_(targets.ne(-1)).nonzero();
  if (lost.size(0) == 0) return;
  const auto row = lost[0].item<int64_t>();
  TORCH_CHECK_INDEX(false, "softmax loss: targets[", row, "] is ", targets[row].item<int64_t>(),
                    ", which no rank's classes hold: write -1 to leave a row out, or raise classes");
}

Tensor shares_of(const Tensor& targets, int64_t counted, const at::TensorOptions& options) {
  return targets.ne(-1).to(options.dtype()).div_(std::max<int64_t>(counted, 1));
}

Tensor mean_loss(const RowNumbers& rows, const Tensor& share, double smoothing, int64_t classes) {
  auto losses = rows.log_sum - rows.target * (1.0 - smoothing);
  if (rows.total.defined()) losses.sub_(rows.total, smoothing / static_cast<double>(classes));
  return at::where(share.ne(0), losses * share, at::zeros({}, losses.options())).sum();
}

}  // namespace tandem::classifier::detail
