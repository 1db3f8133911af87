#include "tandem/classifier/detail/part_loss.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/context.h"
#include "tandem/classifier/detail/block_gradients.h"
#include "tandem/classifier/detail/block_softmax.h"
#include "tandem/classifier/detail/feature_sums.h"
#include "tandem/classifier/detail/row_losses.h"

namespace tandem::classifier {
namespace {

using detail::Target;

BlockOptions keeping_nothing(BlockOptions options) {
  options.keep_bytes = 0;
  return options;
}

/// Rows of a tensor whose first row stands for row `first`.
Tensor rows_of(const Tensor& all, int64_t first, int64_t begin, int64_t end) {
  return all.defined() ? all.narrow(0, begin - first, end - begin) : all;
}

/// The derivatives of the targets' scores with margin, of some rows.
struct TargetSlopes {
  std::vector<int64_t> rows, classes;
  std::vector<double> slopes, along;

  void add(const Target& target, const Scoring& scoring) {
    constexpr double kLeastSquare = 1e-24;
    rows.push_back(target.row);
    classes.push_back(target.target_class);
    slopes.push_back(target.slope * target.factor);
    along.push_back(scoring.normalise_features
                        ? target.slope * target.score
                        : target.radial / std::max(target.feature_length * target.feature_length, kLeastSquare));
  }

  /// [t, D], by the features' rows.
  Tensor of_features(const detail::ClassBlocks& blocks, const Tensor& features, const Tensor& weight) const {
    const auto index = [&](const std::vector<int64_t>& ids) {
      return at::tensor(ids, at::kLong).to(features.device());
    };
    const auto numbers = [&](const std::vector<double>& values) {
      return at::tensor(values, at::kDouble).to(features.options());
    };
    const auto own_rows = index(rows);
    const auto& inverse = blocks.inverse_features();
    auto gradient = weight.detach().index_select(0, index(classes)).mul_(numbers(slopes).unsqueeze(1));
    return to_features(blocks, std::move(gradient), numbers(along), features.index_select(0, own_rows),
                       inverse.defined() ? inverse.index_select(0, own_rows) : inverse);
  }
};

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
  const auto own = softmax_->forward(features_, weight, &sums);
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
  const auto& blocks = softmax_->blocks();
  TargetSlopes targets;
  for (const auto& target : softmax_->targets().all()) {
    if (target.row >= begin && target.row < end) targets.add(target, blocks.scoring());
  }
  const auto of_rows = [&](const Tensor& all) { return rows_of(all, begin_, begin, end); };
  return {.numbers = scores_.numbers.narrow(1, begin - begin_, end - begin).contiguous(),
          .of_scores = of_rows(scores_.of_scores),
          .evenly = of_rows(scores_.evenly),
          .target_rows = at::tensor(targets.rows, at::kLong).sub_(begin),
          .of_targets = targets.of_features(blocks, features_, weight_)};
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
  const auto rows = detail::merge_parts(numbers);
  detail::check_owners(targets, rows.has_owner);
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
  const auto rows = part.target_rows.to(gradient_.device());
  gradient_.index_add_(0, rows, part.of_targets * of_targets.index_select(0, rows).unsqueeze(1));
}

}  // namespace tandem::classifier
