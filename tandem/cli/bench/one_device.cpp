#include "tandem/cli/bench/one_device.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "tandem/comm/world.h"
#include "tandem/data/loader.h"
#include "tandem/job/parts.h"
#include "tandem/models/backbone.h"
#include "tandem/models/space.h"

namespace tandem::cli {
namespace {

Named copies_of(const Named& tensors) {
  Named copies;
  for (const auto& [name, tensor] : tensors) copies[name] = tensor.detach().clone();
  return copies;
}

std::vector<Tensor> values_of(const Named& tensors) {
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : tensors) values.push_back(tensor);
  return values;
}

/// A model and its head, and what they are trained on.
class PlainTraining {
 public:
  PlainTraining(job::Job job, const PlainSteps& steps)
      : job_(std::move(job)), steps_(steps), data_(open_data(job_)), group_(comm::make_single_group()) {
    const auto shape = shape_of(job_, *data_.train);
    backbone_ = make_backbone(job_, shape.image);
    head_ = assemble(job_, shape, *group_).task->parameters().back().tensor.detach().clone().requires_grad_();
    for (const auto& parameter : backbone_->named_parameters()) {
      auto& kind = parameter.key().starts_with(models::kAlphas) ? alphas_ : weights_;
      kind[parameter.key()] = parameter.value();
    }
    weights_[job::kHeadWeight] = head_;
    result_.first_weights = copies_of(all());
    for (const auto& [name, weight] : weights_) speed_[name] = at::zeros_like(weight.detach());
  }

  /// `before`: called with the batch before each step of the weights.
  template <class Before>
  OneDevice run(const Before& before) {
    const auto loader = training_loader(job_, *data_.train, *group_);
    loader->start(0);
    data::Batch batch;
    for (int64_t step = 0; step < steps_.count && loader->next(batch); ++step) {
      before(batch, step);
      const auto loss = this->loss(batch, step);
      result_.losses.push_back(loss.item<double>());
      take(loss);
      if (step == 0) result_.gradients = copies_of(speed_);
    }
    result_.weights = copies_of(all());
    return std::move(result_);
  }

  Tensor loss(const data::Batch& batch, int64_t step = 0) const {
    const auto logits = this->logits(backbone_->forward(batch.images.to(at::kDouble)), batch.labels, step);
    const auto logarithms = logits - logits.logsumexp(1, /*keepdim=*/true);
    const auto& head = steps_.head;
    return at::nll_loss(logarithms, batch.labels) * (1 - head.smoothing) - logarithms.mean() * head.smoothing;
  }

  /// A step of the weights: w - rate (momentum v + g).
  void take(const Tensor& loss) {
    const auto gradients = torch::autograd::grad({loss}, values_of(weights_));
    const at::NoGradGuard no_grad;
    size_t i = 0;
    for (auto& [name, weight] : weights_) {
      speed_[name] = speed_[name] * steps_.momentum + gradients[i++];
      weight.sub_(speed_[name] * steps_.rate);
    }
  }

  /// The weights and their speeds as they were.
  void put_back(const Named& weights, Named speed) {
    const at::NoGradGuard no_grad;
    for (auto& [name, weight] : weights_) weight.copy_(weights.at(name));
    speed_ = std::move(speed);
  }

  const job::Job& job() const { return job_; }
  const Named& weights() const { return weights_; }
  const Named& speed() const { return speed_; }
  const Named& alphas() const { return alphas_; }
  const data::Dataset& validation() const { return *data_.test; }
  const comm::ProcessGroup& group() const { return *group_; }

 private:
  Tensor logits(const Tensor& made, const Tensor& labels, int64_t step) const {
    const auto& head = steps_.head;
    const auto features = head.has_bias ? at::cat({made, at::ones({made.size(0), 1}, made.options())}, 1) : made;
    const auto lengths = [](const Tensor& rows) { return rows.norm(2, {1}, /*keepdim=*/true); };
    const auto products = head.scale == 0
                              ? features.mm(head_.t())
                              : (features / lengths(features)).mm((head_ / lengths(head_)).t()) * head.scale;
    if (head.margin == nullptr) return products;
    const auto targets = labels.unsqueeze(1);
    const auto size = head.scale == 0 ? lengths(features) * lengths(head_).index_select(0, labels)
                                      : at::full({}, head.scale, products.options());
    return products.scatter(1, targets, head.margin(products.gather(1, targets) / size, step) * size);
  }

  Named all() const {
    auto all = weights_;
    all.insert(alphas_.begin(), alphas_.end());
    return all;
  }

  job::Job job_;
  PlainSteps steps_;
  data::Split data_;
  std::shared_ptr<comm::ProcessGroup> group_;
  std::shared_ptr<models::Backbone> backbone_;
  Tensor head_;
  Named weights_, alphas_, speed_;
  OneDevice result_;
};

/// Of the validation loss after a step of the weights, in the alphas.
std::vector<Tensor> alphas_gradient(PlainTraining& training, const data::Batch& batch, const data::Batch& validation,
                                    double rate) {
  const auto alphas = values_of(training.alphas()), weights = values_of(training.weights());
  const auto before = copies_of(training.weights()), speed = training.speed();
  training.take(training.loss(batch));
  auto both = alphas;
  both.insert(both.end(), weights.begin(), weights.end());
  auto gradient = torch::autograd::grad({training.loss(validation)}, both);
  training.put_back(before, speed);
  const std::vector<Tensor> along(gradient.begin() + std::ssize(alphas), gradient.end());
  gradient.resize(alphas.size());
  const auto first = torch::autograd::grad({training.loss(batch)}, weights, {}, std::nullopt, /*create_graph=*/true);
  const auto product = torch::autograd::grad(first, alphas, along);
  for (size_t i = 0; i < alphas.size(); ++i) gradient[i] = gradient[i] - product[i] * rate;
  return gradient;
}

/// Adam with a weight decay that is added to the gradient.
class PlainAdam {
 public:
  PlainAdam(const Named& parameters, const job::Search& search) : parameters_(values_of(parameters)), search_(search) {
    for (const auto& parameter : parameters_) {
      mean_.push_back(at::zeros_like(parameter.detach()));
      square_.push_back(mean_.back().clone());
    }
  }

  void take(const std::vector<Tensor>& gradients) {
    const at::NoGradGuard no_grad;
    const auto& options = search_.alphas;
    const double first = 1 - std::pow(options.beta1, ++steps_), second = 1 - std::pow(options.beta2, steps_);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto gradient = gradients[i] + parameters_[i] * options.weight_decay;
      mean_[i] = mean_[i] * options.beta1 + gradient * (1 - options.beta1);
      square_[i] = square_[i] * options.beta2 + gradient * gradient * (1 - options.beta2);
      parameters_[i].sub_(mean_[i] / first / ((square_[i] / second).sqrt() + options.epsilon) * search_.rate);
    }
  }

 private:
  std::vector<Tensor> parameters_, mean_, square_;
  job::Search search_;
  int steps_ = 0;
};

}  // namespace

OneDevice train_plainly(job::Job job, const PlainSteps& steps) {
  return PlainTraining(std::move(job), steps).run([](const data::Batch&, int64_t) {});
}

OneDevice search_plainly(job::Job job, const PlainSteps& steps) {
  PlainTraining training(std::move(job), steps);
  PlainAdam adam(training.alphas(), *training.job().search);
  const auto loader = training_loader(training.job(), training.validation(), training.group());
  loader->start(0);
  data::Batch validation;
  return training.run([&](const data::Batch& batch, int64_t) {
    loader->next(validation);
    adam.take(alphas_gradient(training, batch, validation, steps.rate));
  });
}

}  // namespace tandem::cli
