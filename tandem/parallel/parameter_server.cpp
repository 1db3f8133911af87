#include "tandem/parallel/parameter_server.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/broadcast_all.h"
#include "tandem/parallel/detail/messages.h"

namespace tandem::parallel {
namespace {

/// A number by which a worker that lacks a gradient tells the others: the aggregate of NaN is NaN. It is the first
/// number of the first message, of which the first server has the first part.
Tensor mark_of(const std::vector<Tensor>& gradients) {
  const auto found = std::ranges::find_if(gradients, [](const Tensor& gradient) { return gradient.numel() > 0; });
  TORCH_CHECK_VALUE(found != gradients.end(), "parameter server: all parameters are empty, wanted one with numbers");
  auto mark = *found;
  while (mark.dim() > 0) mark = mark.select(0, 0);
  return mark;
}

}  // namespace

ParameterServer::ParameterServer(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers,
                                 comm::ProcessGroup& group, const ParameterServerOptions& options)
    : parameters_(tensors_of(trained_of(parameters))),
      buffers_(std::move(buffers)),
      servers_(group, options.servers),
      options_(options),
      arrivals_(parameters_, names_of(trained_of(parameters))) {
  check_workers(*options.aggregate, servers_);
  check_each_once("parameter server", parameters);
  detail::broadcast_all(tensors_of(parameters), 0, group);
  detail::broadcast_all(buffers_, 0, group);
}

std::vector<Parameter> ParameterServer::held(std::vector<Parameter> parameters) const {
  if (!servers_.are_apart()) return parameters;
  const auto is_served = [&](const Parameter& parameter) {
    return std::ranges::any_of(parameters_, [&](const Tensor& own) { return own.is_same(parameter.tensor); });
  };
  if (!servers_.is_worker()) std::erase_if(parameters, is_served);
  const auto& group = servers_.group();
  const Placement::Holders workers = {Axis::data, 0, servers_.workers() - 1, group.rank(), group.size()};
  for (auto& parameter : parameters) {
    const auto sizes = parameter.tensor.sizes();
    if (is_served(parameter)) parameter.placement = parameter.placement.of_box(whole_box(sizes), sizes, workers);
  }
  return parameters;
}

void ParameterServer::before_backward(const Tensor& loss, const MicroBatch& micro, flight::Where where) {
  if (!micro.is_last()) return;
  arrivals_.begin_step();
  where_ = where;
  if (!loss.requires_grad()) exchange(micro);  // a function of constants only: there will be no backward
}

void ParameterServer::after_backward(const MicroBatch& micro) {
  if (micro.is_last()) exchange(micro);
  if (servers_.is_worker()) return;
  for (const auto& parameter : parameters_) parameter.mutable_grad().reset();
}

/// A worker that lacks a gradient pushes zeros, so that no rank waits for it, and a NaN. All ranks then see the NaN,
/// and exchange which gradients are missing.
void ParameterServer::exchange(const MicroBatch& micro) {
  if (parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  bool in_doubt = !arrivals_.are_complete();
  if (!servers_.is_worker()) {
    in_doubt = false;
    arrivals_.excuse_all();
  }
  if (servers_.group().size() > 1) {
    const auto gradients = prepared_gradients(micro);
    if (in_doubt) mark_of(gradients).fill_(std::numeric_limits<double>::quiet_NaN());
    in_doubt = send(gradients);
  }
  if (in_doubt) arrivals_.check(servers_.group());
}

std::vector<Tensor> ParameterServer::prepared_gradients(const MicroBatch& micro) const {
  const double factor = pushed_factor(*options_.aggregate, micro, servers_);
  const CategoryScope scope(Category::gradients);
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters_) {
    auto& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameter);
    if (factor != 1.0) gradient.mul_(factor);
    gradients.push_back(gradient);
  }
  return gradients;
}

/// Returns whether the mark is NaN, the same on all ranks.
bool ParameterServer::send(const std::vector<Tensor>& gradients) {
  const PhaseScope phase(Phase::backward);
  const auto mark = mark_of(gradients);
  clock_.count_unhidden([&] {
    detail::for_each_message(
        gradients, [&](const Tensor& message) { aggregate_(message, *options_.aggregate, servers_, where_); });
    if (servers_.are_apart() && servers_.count() > 1) {  // the first of them has it, as the workers do
      comm::broadcast_(mark, servers_.workers(), servers_.group(), where_);
    }
  });
  return mark.isnan().item<bool>();
}

SyncMemory ParameterServer::memory() {
  if (servers_.group().size() == 1) return {};
  const memory::ProbeScope aside;
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters_) gradients.push_back(at::zeros_like(parameter));
  const memory::ProbeScope probe;
  detail::for_each_message(gradients,
                           [&](const Tensor& message) { aggregate_(message, *options_.aggregate, servers_); });
  return {.exchange = probe.account().peak_bytes()};
}

void ParameterServer::unify(const std::vector<Parameter>&) { detail::broadcast_all(buffers_, 0, servers_.group()); }

}  // namespace tandem::parallel
