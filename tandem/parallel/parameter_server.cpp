#include "tandem/parallel/parameter_server.h"

#include <ATen/ATen.h>

#include <limits>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/broadcast_all.h"
#include "tandem/parallel/detail/messages.h"

namespace tandem::parallel {
namespace {

/// A number by which a rank that lacks a gradient tells the others: the aggregate of NaN is NaN.
Tensor mark_of(Tensor gradient) {
  while (gradient.dim() > 0) gradient = gradient.select(0, 0);
  return gradient;
}

/// From a rank's share of the whole batch's gradient to that of its own mean loss.
double own_mean_factor(const MicroBatch& micro, int ranks) {
  if (micro.samples == 0) return ranks;
  return micro.own_samples == 0 ? 0.0 : static_cast<double>(micro.samples) / static_cast<double>(micro.own_samples);
}

}  // namespace

ParameterServer::ParameterServer(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers,
                                 comm::ProcessGroup& group, const ParameterServerOptions& options)
    : parameters_(tensors_of(trained_of(parameters))),
      buffers_(std::move(buffers)),
      group_(group),
      options_(options),
      arrivals_(parameters_, names_of(trained_of(parameters))) {
  const auto& aggregate = *options.aggregate;
  if (group.size() < aggregate.least_ranks) {
    throw SettingsError("aggregate is " + std::string(aggregate.name) + " with " + std::to_string(group.size()) +
                        " ranks, wanted " + std::to_string(aggregate.least_ranks) + " or more");
  }
  detail::broadcast_all(tensors_of(parameters), 0, group);
  detail::broadcast_all(buffers_, 0, group);
}

void ParameterServer::before_backward(const Tensor& loss, const MicroBatch& micro, flight::Where where) {
  if (!micro.is_last()) return;
  arrivals_.begin_step();
  where_ = where;
  if (!loss.requires_grad()) exchange(micro);  // a function of constants only: there will be no backward
}

void ParameterServer::after_backward(const MicroBatch& micro) {
  if (micro.is_last()) exchange(micro);
}

/// A rank that lacks a gradient pushes zeros, so that no rank waits for it, and a NaN. All ranks then see the NaN, and
/// exchange which gradients are missing.
void ParameterServer::exchange(const MicroBatch& micro) {
  if (parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  bool in_doubt = !arrivals_.are_complete();
  if (group_.size() > 1) {
    const double factor = options_.aggregate->takes_means ? own_mean_factor(micro, group_.size()) : 1.0;
    std::vector<Tensor> gradients;
    for (const auto& parameter : parameters_) {
      auto& gradient = parameter.mutable_grad();
      const CategoryScope scope(Category::gradients);
      if (!gradient.defined()) gradient = at::zeros_like(parameter);
      if (factor != 1.0) gradient.mul_(factor);
      gradients.push_back(gradient);
    }
    const auto mark = mark_of(gradients[0]);
    if (in_doubt) mark.fill_(std::numeric_limits<double>::quiet_NaN());
    send(gradients);
    in_doubt = mark.isnan().item<bool>();
  }
  if (in_doubt) arrivals_.check(group_);
}

void ParameterServer::send(const std::vector<Tensor>& gradients) {
  const PhaseScope phase(Phase::backward);
  const auto start = detail::OverlapClock::now();
  detail::for_each_message(gradients,
                           [&](const Tensor& message) { aggregate_(message, *options_.aggregate, group_, where_); });
  clock_.has_travelled(start);
  clock_.has_waited(start);
}

int64_t ParameterServer::exchange_bytes() {
  if (group_.size() == 1) return 0;
  const memory::ProbeScope aside;
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters_) gradients.push_back(at::zeros_like(parameter));
  const memory::ProbeScope probe;
  detail::for_each_message(gradients, [&](const Tensor& message) { aggregate_(message, *options_.aggregate, group_); });
  return probe.account().peak_bytes();
}

void ParameterServer::unify() { detail::broadcast_all(buffers_, 0, group_); }

}  // namespace tandem::parallel
