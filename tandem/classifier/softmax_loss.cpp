#include "tandem/classifier/softmax_loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "tandem/classifier/detail/scores.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"

namespace tandem::classifier {
namespace {

using detail::LocalTargets;
using detail::ScoreParts;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_arguments(const Tensor& features, const Tensor& weight, const Tensor& targets) {
  TORCH_CHECK_VALUE(features.dim() == 2 && weight.dim() == 2 && features.size(1) == weight.size(1),
                    "softmax loss: features are ", features.sizes(), " and weight ", weight.sizes(),
                    ", wanted [N, D] and [C_local, D]");
  TORCH_CHECK_VALUE(targets.dim() == 1 && targets.size(0) == features.size(0), "softmax loss: targets are ",
                    targets.sizes(), ", wanted [", features.size(0), "], one a row of features");
  TORCH_CHECK_TYPE(features.scalar_type() == weight.scalar_type(), "softmax loss: features are ",
                   features.scalar_type(), " and weight ", weight.scalar_type(), ", wanted the same");
}

/// Every counted target must be some rank's class; told by the id and the row.
void check_owners(const Tensor& targets, const Tensor& owned) {
  const auto lost = owned.logical_not().logical_and_(targets.ne(-1)).nonzero();
  if (lost.size(0) == 0) return;
  const auto row = lost[0].item<int64_t>();
  TORCH_CHECK_INDEX(false, "softmax loss: targets[", row, "] is ", targets[row].item<int64_t>(),
                    ", which no rank's classes hold: write -1 to leave a row out, or raise classes");
}

void subtract_margin(Tensor& scores, const LocalTargets& targets, const Scoring& scoring) {
  if (!scoring.normalised || scoring.margin == 0.0) return;
  const auto amount = at::full({targets.rows.size(0)}, -scoring.scale * scoring.margin, scores.options());
  scores.index_put_({targets.classes, targets.rows}, amount, /*accumulate=*/true);
}

double lowest_of(at::ScalarType type) {
  return type == at::kFloat ? std::numeric_limits<float>::lowest() : std::numeric_limits<double>::lowest();
}

struct RowStatistics {
  Tensor maximum, sum, target;  // [N] each, over all ranks
  Tensor owned;                 // [N] bool: some rank has the target
};

/// Three numbers a row travel: this rank's maximum, its sum of exp(score - maximum), and the target's score, or where
/// the target is another rank's the lowest number there is. Leaves exp(score - own maximum) in `scores`; returns this
/// rank's maximum beside the global numbers.
std::pair<RowStatistics, Tensor> merge_statistics(Tensor& scores, const LocalTargets& targets,
                                                  comm::ProcessGroup& group) {
  const auto rows = scores.size(1);
  const double lowest = lowest_of(scores.scalar_type());
  auto packed = at::empty({1, 3, rows}, scores.options());
  auto own_max = packed.select(1, 0).select(0, 0), own_sum = packed.select(1, 1).select(0, 0),
       own_target = packed.select(1, 2).select(0, 0);
  if (scores.size(0) > 0) {
    own_max.copy_(scores.amax({0}));
  } else {
    own_max.fill_(lowest);
  }
  own_target.fill_(lowest);
  own_target.index_put_({targets.rows}, scores.index({targets.classes, targets.rows}));
  scores.sub_(own_max).exp_();
  own_sum.copy_(scores.sum({0}));

  const std::vector<int64_t> sizes(group.size(), 1);
  const auto all = comm::all_gather(packed, group, 0, sizes);  // [ranks, 3, N]
  RowStatistics merged;
  const auto maxima = all.select(1, 0);
  merged.maximum = maxima.amax({0});
  merged.sum = (all.select(1, 1) * (maxima - merged.maximum).exp_()).sum({0});
  const auto candidates = all.select(1, 2);
  const auto elsewhere = candidates.eq(lowest);
  merged.owned = elsewhere.logical_not().any(0);
  merged.target = candidates.masked_fill(elsewhere, 0).sum({0});
  return {merged, own_max.clone()};
}

Tensor mean_over_counted(const Tensor& row_losses, const Tensor& targets, int64_t counted) {
  const auto kept = at::where(targets.eq(-1), at::zeros({}, row_losses.options()), row_losses);
  return kept.sum().div_(std::max<int64_t>(counted, 1));
}

void save(AutogradContext* context, const ScoreParts& parts, const Tensor& weight, const LocalTargets& targets,
          const Tensor& row_factor, const Scoring& scoring) {
  context->save_for_backward({parts.features, parts.inverse_feature_norms, parts.inverse_weight_norms, weight,
                              targets.rows, targets.classes, row_factor});
  // The buffer is changed in place by backward and belongs to nobody else: it is kept as data, not as a saved tensor.
  context->saved_data["scores"] = parts.scores;
  context->saved_data["scale"] = scoring.scale;
  context->saved_data["normalised"] = scoring.normalised;
}

struct Saved {
  ScoreParts parts;
  Tensor weight, rows, classes, row_factor;
  Scoring scoring;
};

Saved load(AutogradContext* context) {
  const auto tensors = context->get_saved_variables();
  TORCH_CHECK(context->saved_data.count("scores") > 0,
              "softmax loss: backward ran twice, wanted once: its buffer is used up by the first");
  Saved saved{{context->saved_data["scores"].toTensor(), tensors[0], tensors[1], tensors[2]},
              tensors[3],
              tensors[4],
              tensors[5],
              tensors[6],
              {context->saved_data["normalised"].toBool(), context->saved_data["scale"].toDouble(), 0.0}};
  context->saved_data.erase("scores");
  return saved;
}

struct ShardedLoss : torch::autograd::Function<ShardedLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& features, const Tensor& weight, const Tensor& targets,
                        int64_t first, const Scoring& scoring, comm::ProcessGroup* group) {
    const auto local = detail::find_targets(targets, first, weight.size(0));
    auto parts = detail::forward_scores(features, weight, scoring);
    subtract_margin(parts.scores, local, scoring);
    const auto [rows, own_max] = merge_statistics(parts.scores, local, *group);
    check_owners(targets, rows.owned);
    // softmax = exp(score - own maximum) * exp(own maximum - maximum) / sum; then the mean's 1 / counted.
    const auto counted = targets.ne(-1).to(rows.sum.scalar_type()).div_(std::max<int64_t>(local.counted, 1));
    const auto row_factor = at::stack({(own_max - rows.maximum).exp_().div_(rows.sum).mul_(counted), counted});
    save(context, parts, weight, local, row_factor, scoring);
    return mean_over_counted(rows.sum.log() + rows.maximum - rows.target, targets, local.counted);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const memory::Scope scope(memory::Category::activations);
    auto [parts, weight, rows, classes, row_factor, scoring] = load(context);
    parts.scores.mul_(row_factor[0] * gradients[0]);  // now p / N
    const auto one = (row_factor[1] * gradients[0]).index_select(0, rows).neg_();
    parts.scores.index_put_({classes, rows}, one, /*accumulate=*/true);
    auto [feature_gradient, weight_gradient] = detail::backward_scores(parts.scores, parts, weight, scoring);
    return {feature_gradient, weight_gradient, {}, {}, {}, {}};
  }
};

struct NaiveLoss : torch::autograd::Function<NaiveLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& features, const Tensor& weight, const Tensor& targets,
                        int64_t first, const Scoring& scoring, comm::ProcessGroup* group) {
    const auto local = detail::find_targets(targets, first, weight.size(0));
    auto parts = detail::forward_scores(features, weight, scoring);
    subtract_margin(parts.scores, local, scoring);
    const auto sizes = class_counts(weight.size(0), *group);
    const auto all = comm::gather(parts.scores, 0, *group, 0, sizes);
    auto loss = at::zeros({}, parts.scores.options());
    Tensor gradient = all;
    if (group->rank() == 0) std::tie(loss, gradient) = loss_on_root(all, targets, local.counted);
    comm::broadcast_(loss, 0, *group);
    parts.scores = comm::scatter(gradient, 0, *group, 0, sizes);
    save(context, parts, weight, local, at::zeros({}, parts.scores.options()), scoring);
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const memory::Scope scope(memory::Category::activations);
    auto [parts, weight, rows, classes, row_factor, scoring] = load(context);
    parts.scores.mul_(gradients[0]);
    auto [feature_gradient, weight_gradient] = detail::backward_scores(parts.scores, parts, weight, scoring);
    return {feature_gradient, weight_gradient, {}, {}, {}, {}};
  }

 private:
  static std::vector<int64_t> class_counts(int64_t own, comm::ProcessGroup& group) {
    const auto counts =
        comm::all_gather(at::full({1}, own, at::kLong), group, 0, std::vector<int64_t>(group.size(), 1));
    return {counts.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>() + group.size()};
  }

  static std::pair<Tensor, Tensor> loss_on_root(const Tensor& scores, const Tensor& targets, int64_t counted) {
    const auto kept = targets.clamp_min(0);
    const auto out_of_range = kept.ge(scores.size(0));
    check_owners(targets, out_of_range.logical_not());
    const auto log_sums = scores.logsumexp({0});
    const auto target_scores = scores.gather(0, kept.unsqueeze(0)).squeeze(0);
    const auto loss = mean_over_counted(log_sums - target_scores, targets, counted);
    const auto weights = targets.ne(-1).to(scores.scalar_type()).div_(std::max<int64_t>(counted, 1));
    auto gradient = (scores - log_sums).exp_().mul_(weights);
    gradient.scatter_add_(0, kept.unsqueeze(0), weights.neg().unsqueeze(0));
    return {loss, gradient};
  }
};

}  // namespace

Tensor sharded_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                            const Scoring& scoring, comm::ProcessGroup& group) {
  check_arguments(features, weight, targets);
  return ShardedLoss::apply(features, weight, targets, first, scoring, &group);
}

Tensor naive_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                          const Scoring& scoring, comm::ProcessGroup& group) {
  check_arguments(features, weight, targets);
  return NaiveLoss::apply(features, weight, targets, first, scoring, &group);
}

Tensor class_scores(const Tensor& features, const Tensor& weight, const Scoring& scoring) {
  const at::NoGradGuard no_grad;
  return detail::forward_scores(features, weight, scoring).scores;
}

}  // namespace tandem::classifier
