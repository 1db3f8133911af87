#include "tandem/classifier/detail/part_loss.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/classifier/detail/block_gradients.h"
#include "tandem/classifier/detail/block_softmax.h"
#include "tandem/classifier/detail/feature_sums.h"
#include "tandem/classifier/detail/on_device.h"
#include "tandem/classifier/detail/row_losses.h"

namespace tandem::classifier {
namespace {

BlockOptions keeping_nothing(BlockOptions options) {
  options.keep_bytes = 0;
  return options;
}

/// Rows of a tensor whose first row stands for row `first`.
Tensor rows_of(const Tensor& all, int64_t first, int64_t begin, int64_t end) {
  return all.defined() ? all.narrow(0, begin - first, end - begin) : all;
}

/// Which of the targets are those of some rows.
std::vector<int64_t> targets_of(const std::vector<int64_t>& rows, int64_t begin, int64_t end) {
  std::vector<int64_t> found;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= begin && rows[i] < end) found.push_back(static_cast<int64_t>(i));
  }
  return found;
}

/// The derivatives of some targets' scores with margin by the features' rows, [t, D].
Tensor slopes_of(const detail::LocalTargets& targets, const Tensor& which, const detail::ClassBlocks& blocks,
                 const Tensor& features, const Tensor& weight) {
  constexpr double kLeastSquare = 1e-24;
  using detail::TargetNumbers;
  const auto numbers = [&](double TargetNumbers::*number) { return targets.numbers(number).index_select(0, which); };
  const auto slope = numbers(&TargetNumbers::slope);
  const auto along = blocks.scoring().normalise_features
                         ? slope * numbers(&TargetNumbers::score)
                         : numbers(&TargetNumbers::radial) /
                               numbers(&TargetNumbers::feature_length).square_().clamp_min_(kLeastSquare);
  const auto rows = targets.row_ids().index_select(0, which), classes = targets.class_ids().index_select(0, which);
  const auto by = (slope * numbers(&TargetNumbers::factor)).to(features.scalar_type());
  const auto& inverse = blocks.inverse_features();
  return detail::to_features(blocks, weight.detach().index_select(0, classes).mul_(by.unsqueeze(1)),
                             along.to(features.scalar_type()), features.index_select(0, rows),
                             inverse.defined() ? inverse.index_select(0, rows) : inverse);
}

}  // namespace

std::vector<Tensor> PartScores::sums() && {
  std::vector<Tensor> all;
  for (auto* tensor : {&of_scores, &target_rows, &of_targets, &evenly}) {
    if (tensor->defined()) all.push_back(std::move(*tensor));
  }
  return all;
}

PartLoss::PartLoss(Tensor features, Tensor weight, const Tensor& targets, int64_t first, const Scoring& scoring,
                   const BlockOptions& blocks)
    : features_(std::move(features)), weight_(std::move(weight)) {
  detail::check_arguments(features_, weight_, targets, scoring);
  softmax_ = std::make_unique<detail::BlockSoftmax>(features_, weight_.detach(), targets, first, scoring,
                                                    keeping_nothing(blocks));
}

PartLoss::~PartLoss() = default;

int64_t PartLoss::counted() const { return softmax_->targets().counted(); }

void PartLoss::score() {
  const at::NoGradGuard no_grad;
  const auto weight = weight_.detach();
  const auto& blocks = softmax_->blocks();
  detail::FeatureSums sums(blocks, features_);
  const auto own = softmax_->forward_with(&sums, features_, weight);
  scores_.numbers = detail::pack(own, softmax_->targets())[0];
  const auto& inverse = blocks.inverse_features();
  const auto by_rows = [&](Tensor of_inputs) {
    Tensor along;
    if (inverse.defined()) {
      const auto inputs = features_ * (inverse * blocks.scoring().scale).unsqueeze(1);
      along = inputs.mul_(of_inputs).sum({1});
    } else if (blocks.has_radial()) {
      along = at::zeros({features_.size(0)}, features_.options());
    }
    return to_features(blocks, std::move(of_inputs), std::move(along), features_, inverse);
  };
  scores_.of_scores = by_rows(sums.take_weighed());
  if (auto even = sums.take_even(); even.defined()) scores_.evenly = by_rows(std::move(even));
}

PartScores PartLoss::scores_of(int64_t begin, int64_t end) const {
  const at::NoGradGuard no_grad;
  const auto& targets = softmax_->targets();
  const auto which = targets_of(targets.rows(), begin, end);
  std::vector<int64_t> target_rows;
  for (const auto i : which) target_rows.push_back(targets.rows()[i] - begin);
  const auto index = detail::on_device(at::tensor(which, at::kLong), features_.device());
  const auto of_rows = [&](const Tensor& all) { return rows_of(all, begin_, begin, end); };
  return {.numbers = scores_.numbers.narrow(1, begin - begin_, end - begin).contiguous(),
          .of_scores = of_rows(scores_.of_scores),
          .evenly = of_rows(scores_.evenly),
          .target_rows = at::tensor(target_rows, at::kLong),
          .of_targets = slopes_of(targets, index, softmax_->blocks(), features_, weight_)};
}

void PartLoss::release(int64_t begin, int64_t end) {
  const auto only = [&](Tensor& all) {
    if (all.defined()) all = begin == end ? Tensor() : rows_of(all, begin_, begin, end).clone();
  };
  if (end - begin == features_.size(0)) return;
  only(scores_.of_scores);
  only(scores_.evenly);
  scores_.numbers = begin == end ? Tensor() : scores_.numbers.narrow(1, begin - begin_, end - begin).clone();
  begin_ = begin;
}

void PartLoss::add_class_gradient(const Tensor& log_sum, const Tensor& share, int64_t classes) {
  const at::NoGradGuard no_grad;
  auto& gradient = weight_.mutable_grad();
  const bool is_new = !gradient.defined();
  if (is_new) {
    const CategoryScope scope(Category::gradients);
    gradient = at::empty_like(weight_);
  }
  const auto add = [&](const Rows& rows, const Tensor& of_rows) {
    auto own = gradient.narrow(0, rows.begin, rows.count);
    is_new ? own.copy_(of_rows) : own.add_(of_rows);
  };
  softmax_->backward(features_, weight_.detach(), log_sum, share, classes, add, /*of_features=*/false);
}

PartsMerge::PartsMerge(const Tensor& numbers, const Tensor& targets, const Tensor& share, double smoothing,
                       int64_t classes)
    : share_(share), smoothing_(smoothing), classes_(classes) {
  detail::check_targets(targets, classes);
  const auto rows = detail::merge_parts(numbers);
  loss_ = detail::mean_loss(rows, share, smoothing, classes);
  log_sum_ = rows.log_sum;
  target_ = rows.target;
}

void PartsMerge::add(const PartScores& part, double factor) {
  if (!gradient_.defined()) gradient_ = at::zeros_like(part.of_scores);
  const auto share = share_ * factor;
  const double even = smoothing_ / static_cast<double>(classes_);
  const auto weights = (part.numbers[0] - log_sum_).exp_().mul_(share);
  gradient_.addcmul_(part.of_scores, weights.unsqueeze(1));
  if (part.evenly.defined()) gradient_.addcmul_(part.evenly, (share * even).unsqueeze(1), -1);
  if (part.target_rows.numel() == 0) return;
  const auto of_targets = (target_ - log_sum_).exp_().sub_(1 - smoothing_ + even).mul_(share);
  const auto rows = detail::on_device(part.target_rows, gradient_.device());
  gradient_.index_add_(0, rows, part.of_targets * of_targets.index_select(0, rows).unsqueeze(1));
}

}  // namespace tandem::classifier
