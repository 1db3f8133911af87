#include "tandem/classifier/softmax_loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/classifier/detail/on_device.h"
#include "tandem/classifier/detail/row_losses.h"
#include "tandem/classifier/detail/whole_softmax.h"
#include "tandem/comm/collectives.h"

namespace tandem::classifier {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What each loss keeps for its backward.
struct KeptBlocks : torch::CustomClassHolder {
  std::unique_ptr<detail::OwnSoftmax> softmax;
  Tensor log_sum, share;  // [N]; share: the loss's derivative by a row's loss
  RowUpdate update;
  int64_t classes = 0;
};

struct KeptScores : torch::CustomClassHolder {
  std::unique_ptr<detail::WholeSoftmax> softmax;
  Tensor gradient;  // of the scores
};

/// The names that libtorch's Function gives its arguments in backward.
variable_list gradients_of(const std::pair<Tensor, Tensor>& both, size_t arguments) {
  variable_list gradients(arguments);
  gradients[0] = both.first;
  gradients[1] = both.second;
  return gradients;
}

template <class Holder>
Holder& kept_in(AutogradContext* context) {
  return static_cast<Holder&>(*context->saved_data["kept"].toCapsule());
}

void keep(AutogradContext* context, const c10::intrusive_ptr<torch::CustomClassHolder>& kept, const Tensor& features,
          const Tensor& weight) {
  context->save_for_backward({features, weight});
  context->saved_data["kept"] = c10::IValue::make_capsule(kept);
}

struct ShardedLoss : torch::autograd::Function<ShardedLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& features, const Tensor& weight, const Tensor& targets,
                        int64_t first, int64_t classes, const Scoring& scoring, comm::ProcessGroup* group,
                        const LossOptions& options) {
    detail::check_targets(targets, classes);
    const auto kept = c10::make_intrusive<KeptBlocks>();
    kept->softmax = detail::make_own_softmax(features, weight, targets, first, scoring, options.blocks,
                                             options.sample ? &*options.sample : nullptr);
    const auto own = kept->softmax->forward(features, weight);
    const auto rows = detail::merge_ranks(own, kept->softmax->targets(), *group);
    kept->log_sum = rows.log_sum;
    kept->share = detail::shares_of(targets, kept->softmax->targets().counted(), features.options());
    kept->classes = classes;
    kept->update = options.update;
    keep(context, kept, features, weight);
    return detail::mean_loss(rows, kept->share, scoring.smoothing, classes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), "softmax loss: its gradient has none of its own, wanted ",
                                "backward without create_graph");
    const CategoryScope scope(Category::activations);
    const auto saved = context->get_saved_variables();
    auto& kept = kept_in<KeptBlocks>(context);
    const auto share = kept.share * gradients[0];
    return gradients_of(kept.softmax->backward(saved[0], saved[1], kept.log_sum, share, kept.classes, kept.update), 8);
  }
};

struct NaiveLoss : torch::autograd::Function<NaiveLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& features, const Tensor& weight, const Tensor& targets,
                        int64_t first, const std::vector<int64_t>& counts, const Scoring& scoring,
                        comm::ProcessGroup* group) {
    detail::check_targets(targets, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    const auto kept = c10::make_intrusive<KeptScores>();
    kept->softmax = std::make_unique<detail::WholeSoftmax>(features, weight, targets, first, scoring);
    const auto scores = kept->softmax->forward(features, weight);
    const auto all = comm::gather(scores, 0, *group, 0, counts);
    auto loss = at::zeros({}, scores.options());
    Tensor gradient = all;
    if (group->rank() == 0) {
      const auto share = detail::shares_of(targets, kept->softmax->targets().counted(), features.options());
      std::tie(loss, gradient) = loss_on_root(all, targets, share, scoring.smoothing);
    }
    comm::broadcast_(loss, 0, *group);
    kept->gradient = comm::scatter(gradient, 0, *group, 0, counts);
    keep(context, kept, features, weight);
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const CategoryScope scope(Category::activations);
    const auto saved = context->get_saved_variables();
    auto& kept = kept_in<KeptScores>(context);
    return gradients_of(kept.softmax->backward(saved[0], saved[1], kept.gradient * gradients[0]), 7);
  }

 private:
  static std::pair<Tensor, Tensor> loss_on_root(const Tensor& scores, const Tensor& targets, const Tensor& share,
                                                double smoothing) {
    const auto ids = detail::on_device(targets.clamp_min(0), scores.device());
    const double even = smoothing / static_cast<double>(scores.size(0));
    const auto log_sums = scores.logsumexp({0});
    const auto target_scores = scores.gather(0, ids.unsqueeze(0)).squeeze(0);
    const auto losses = log_sums - (1.0 - smoothing) * target_scores - even * scores.sum({0});
    auto gradient = (scores - log_sums).exp_().sub_(even).mul_(share);
    gradient.scatter_add_(0, ids.unsqueeze(0), (share * (smoothing - 1.0)).unsqueeze(0));
    return {at::where(share.ne(0), losses * share, at::zeros({}, losses.options())).sum(), gradient};
  }
};

}  // namespace

Tensor sharded_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                            int64_t classes, const Scoring& scoring, comm::ProcessGroup& group,
                            const LossOptions& options) {
  detail::check_arguments(features, weight, targets, scoring);
  TORCH_CHECK_VALUE(!options.sample || scoring.smoothing == 0,
                    "softmax loss: smoothing is over all classes, wanted 0 where only some are sampled");
  return ShardedLoss::apply(features, weight, targets, first, classes, scoring, &group, options);
}

Tensor naive_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                          const std::vector<int64_t>& counts, const Scoring& scoring, comm::ProcessGroup& group) {
  detail::check_arguments(features, weight, targets, scoring);
  return NaiveLoss::apply(features, weight, targets, first, counts, scoring, &group);
}

Tensor class_scores(const Tensor& features, const Tensor& weight, const Scoring& scoring) {
  const at::NoGradGuard no_grad;
  auto rows = features * scoring.scale;
  if (scoring.normalise_features) rows.mul_(detail::inverse_lengths(features).unsqueeze(1));
  auto scores = at::mm(weight, rows.t());
  return scoring.normalise_weight ? scores.mul_(detail::inverse_lengths(weight).unsqueeze(1)) : scores;
}

}  // namespace tandem::classifier
