#include "tandem/parallel/updating_servers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tandem/base/context.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/broadcast_all.h"
#include "tandem/parallel/detail/served_flat.h"

namespace tandem::parallel {

UpdatingServers::UpdatingServers(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers,
                                 comm::ProcessGroup& group, const ParameterServerOptions& options)
    : buffers_(std::move(buffers)), servers_(group, options.servers), options_(options) {
  check_workers(*options.aggregate, servers_);
  if (group.size() == 1) return;
  std::vector<Tensor> frozen;
  std::map<at::ScalarType, std::vector<Parameter>> trained;
  for (const auto& parameter : parameters) {
    if (parameter.tensor.requires_grad()) {
      trained[parameter.tensor.scalar_type()].push_back(parameter);
    } else {
      frozen.push_back(parameter.tensor);
    }
  }
  detail::broadcast_all(frozen, 0, group);
  detail::broadcast_all(buffers_, 0, group);
  for (auto& [type, members] : trained) {
    flats_.push_back(std::make_unique<detail::ServedFlat>(std::move(members), servers_, group));
  }
}

UpdatingServers::~UpdatingServers() = default;

std::vector<Parameter> UpdatingServers::held(std::vector<Parameter> parameters) const {
  std::map<const c10::TensorImpl*, const std::vector<Parameter>*> parts;
  for (const auto& flat : flats_) {
    for (size_t i = 0; i < flat->parameters().size(); ++i) {
      parts[flat->parameters()[i].tensor.unsafeGetTensorImpl()] = &flat->held(i);
    }
  }
  std::vector<Parameter> result;
  for (auto& parameter : parameters) {
    const auto found = parts.find(parameter.tensor.unsafeGetTensorImpl());
    if (found == parts.end()) {
      result.push_back(std::move(parameter));
    } else {
      result.insert(result.end(), found->second->begin(), found->second->end());
    }
  }
  return result;
}

void UpdatingServers::before_forward(const MicroBatch& micro) {
  if (!micro.is_first()) return;
  if (!is_fresh_) pull();
  for (const auto& flat : flats_) flat->lay_gradients();
}

void UpdatingServers::before_backward(const Tensor&, const MicroBatch&, flight::Where where) { where_ = where; }

void UpdatingServers::after_backward(const MicroBatch& micro) {
  if (micro.is_last()) push(micro);
  for (const auto& flat : flats_) flat->drop_idle_gradients();
}

void UpdatingServers::push(const MicroBatch& micro) {
  const PhaseScope phase(Phase::backward);
  const auto start = detail::OverlapClock::now();
  const double factor = pushed_factor(*options_.aggregate, micro, servers_);
  for (const auto& flat : flats_) flat->push(*options_.aggregate, factor, where_);
  clock_.has_travelled(start);
  clock_.has_waited(start);
}

void UpdatingServers::pull() {
  const auto start = detail::OverlapClock::now();
  for (const auto& flat : flats_) flat->pull();
  is_fresh_ = true;
  clock_.has_travelled(start);
  clock_.has_waited(start);
}

void UpdatingServers::after_step() { pull(); }

void UpdatingServers::unify() {
  if (!is_fresh_) pull();
  detail::broadcast_all(buffers_, 0, servers_.group());
}

int64_t UpdatingServers::exchange_bytes() {
  int64_t most = 0;
  for (const auto& flat : flats_) most = std::max(most, flat->exchange_bytes(*options_.aggregate));
  return most;
}

std::vector<Tensor> UpdatingServers::owned_gradients() const {
  std::vector<Tensor> owned;
  for (const auto& flat : flats_) {
    for (size_t i = 0; i < flat->parameters().size(); ++i) {
      if (servers_.is_worker()) owned.push_back(flat->parameters()[i].tensor);
      for (const auto& part : flat->held(i)) owned.push_back(part.tensor);
    }
  }
  return owned;
}

}  // namespace tandem::parallel
