#include "tandem/parallel/model_averaging.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/broadcast_all.h"
#include "tandem/parallel/detail/messages.h"

namespace tandem::parallel {
namespace {

void check(bool right, const std::string& fault) {
  if (!right) throw SettingsError(fault);
}

void check_options(const ModelAveragingOptions& options) {
  check(options.every >= 1, "every is " + std::to_string(options.every) + ", wanted 1 step or more between meetings");
  if (!options.outer) return;
  const auto& [learning_rate, momentum] = *options.outer;
  check(learning_rate > 0, "outer learning rate is " + std::to_string(learning_rate) + ", wanted more than 0");
  check(momentum >= 0 && momentum < 1,
        "outer momentum is " + std::to_string(momentum) + ", wanted 0 or more and less than 1");
}

}  // namespace

void ModelAveraging::Samples::add(const Samples& more) {
  own += more.own;
  all += more.all;
}

ModelAveraging::ModelAveraging(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers,
                               comm::ProcessGroup& group, const ModelAveragingOptions& options)
    : parameters_(trained_of(parameters)),
      tags_(tensors_of(parameters_)),
      buffers_(std::move(buffers)),
      group_(group),
      options_(options) {
  check_each_once("model averaging", parameters);
  check_options(options);
  if (!options.starts_equal) {
    detail::broadcast_all(tensors_of(parameters), 0, group);
    detail::broadcast_all(buffers_, 0, group);
  }
  if (!options.outer) return;
  const CategoryScope scope(Category::optimizer);
  for (const auto& parameter : parameters_) {
    met_.push_back(parameter.tensor.detach().clone());
    velocity_.push_back(at::zeros_like(parameter.tensor.detach()));
  }
}

void ModelAveraging::before_forward(const MicroBatch& micro) {
  if (!micro.is_first() || steps_ > 0) return;
  for (size_t i = 0; i < met_.size(); ++i) met_[i].copy_(parameters_[i].tensor.detach());  // it may have been loaded
}

void ModelAveraging::after_backward(const MicroBatch& micro) {
  if (!micro.is_last()) return;
  in_step_ = micro.samples > 0 ? Samples{micro.own_samples, micro.samples} : Samples{1, group_.size()};
  const at::NoGradGuard no_grad;
  for (auto& parameter : parameters_) {
    auto& gradient = parameter.tensor.mutable_grad();
    if (in_step_.own == 0) gradient.reset();
    if (gradient.defined()) gradient.mul_(static_cast<double>(in_step_.all) / static_cast<double>(in_step_.own));
  }
}

void ModelAveraging::after_step() {
  in_round_.add(in_step_);
  apart_.add(in_step_);
  if (++steps_ == options_.every) meet();
}

/// What the ranks were given is one model, as after unify().
void ModelAveraging::values_replaced() {
  steps_ = 0;
  in_round_ = apart_ = {};
}

void ModelAveraging::meet() {
  if (steps_ == 0) return;
  average(tensors_of(parameters_), in_round_);
  if (options_.outer) step_outward();
  in_round_ = {};
  steps_ = 0;
}

/// Works in the weights, which hold the mean: no other memory.
void ModelAveraging::step_outward() {
  const at::NoGradGuard no_grad;
  const auto& [learning_rate, momentum] = *options_.outer;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto weight = parameters_[i].tensor.detach();
    weight.neg_().add_(met_[i]);  // delta
    velocity_[i].mul_(momentum).add_(weight);
    weight.add_(velocity_[i], momentum).mul_(-learning_rate).add_(met_[i]);
  }
}

void ModelAveraging::average(const std::vector<Tensor>& tensors, const Samples& samples) {
  if (group_.size() == 1) return;
  detail::for_each_message(tensors, [&](Tensor message) {
    message.mul_(samples.share());
    comm::all_reduce_(message, group_);
  });
}

SyncMemory ModelAveraging::memory() {
  const memory::ProbeScope aside;
  std::vector<Tensor> alike;
  for (const auto& parameter : parameters_) alike.push_back(at::zeros_like(parameter.tensor.detach()));
  const memory::ProbeScope probe;
  average(alike, {1, 1});
  return {.after_step = probe.account().peak_bytes()};
}

void ModelAveraging::unify(const std::vector<Parameter>& optimizer) {
  average_optimizer(optimizer);
  meet();
  if (apart_.all == 0 || group_.size() == 1) return;
  std::vector<Tensor> means, others;
  for (const auto& buffer : buffers_) (buffer.is_floating_point() ? means : others).push_back(buffer);
  average(means, apart_);
  detail::broadcast_all(others, 0, group_);
  apart_ = {};
}

void ModelAveraging::average_optimizer(const std::vector<Parameter>& state) {
  if (apart_.all == 0) return;
  std::vector<Tensor> copies;
  for (const auto& parameter : state) {
    if (parameter.placement.is_replicated_along(kBatchAxes)) copies.push_back(parameter.tensor);
  }
  average(copies, apart_);
}

std::vector<Parameter> ModelAveraging::state() const {
  std::vector<Parameter> state;
  for (size_t i = 0; i < velocity_.size(); ++i) {
    state.push_back(parameters_[i].beside("optimizer.outer_momentum_buffer." + parameters_[i].name, velocity_[i]));
  }
  return state;
}

}  // namespace tandem::parallel
