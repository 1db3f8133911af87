#include "tandem/parallel/updating_servers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/broadcast_all.h"
#include "tandem/parallel/detail/held_parts.h"
#include "tandem/parallel/detail/served_flat.h"

namespace tandem::parallel {

UpdatingServers::UpdatingServers(const std::vector<Parameter>& parameters, std::vector<Tensor> buffers,
                                 comm::ProcessGroup& group, const ParameterServerOptions& options)
    : tags_(tensors_of(parameters)),
      buffers_(std::move(buffers)),
      servers_(options.staleness > 0 && group.size() > 1 ? group.beside() : group, options.servers),
      options_(options),
      pushes_(static_cast<size_t>(std::max<int64_t>(0, options.staleness) + 1)) {
  check_workers(*options.aggregate, servers_);
  if (options.staleness < 0) {
    throw SettingsError("staleness is " + std::to_string(options.staleness) + ", wanted 0 or more steps");
  }
  detail::check_divisible("parameter server", parameters);
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
    flats_.push_back(std::make_unique<detail::ServedFlat>(std::move(members), servers_, options.staleness));
  }
}

UpdatingServers::~UpdatingServers() = default;

std::vector<Parameter> UpdatingServers::held(std::vector<Parameter> parameters) const {
  detail::PartsOf parts;
  for (const auto& flat : flats_) {
    for (size_t i = 0; i < flat->parameters().size(); ++i) parts[flat->parameters()[i].tensor] = &flat->held(i);
  }
  return detail::replace_by_parts(std::move(parameters), parts);
}

void UpdatingServers::before_forward(const MicroBatch& micro) {
  if (!micro.is_first() || flats_.empty()) return;
  take_weights();
  if (servers_.is_worker()) count_lag(begun_ - installed_);
  for (const auto& flat : flats_) flat->lay_gradients(slot_of(begun_));
}

void UpdatingServers::count_lag(int64_t updates) {
  lag_.most = std::max(lag_.most, updates);
  lag_.sum += updates;
  ++lag_.steps;
}

void UpdatingServers::before_backward(const Tensor&, const MicroBatch&, flight::Where where) { where_ = where; }

void UpdatingServers::after_backward(const MicroBatch& micro) {
  if (micro.is_last() && !flats_.empty()) end_backward(micro);
  for (const auto& flat : flats_) flat->drop_idle_gradients();
}

void UpdatingServers::end_backward(const MicroBatch& micro) {
  for (const auto& flat : flats_) flat->take_gradients(slot_of(begun_));
  pushes_[slot_of(begun_)] = {pushed_factor(*options_.aggregate, micro, servers_), where_};
  ++begun_;
  if (options_.staleness == 0) push();
}

void UpdatingServers::wait_for_gradients() {
  if (options_.staleness > 0 && !flats_.empty()) push();
}

/// Of the oldest step that is not complete.
void UpdatingServers::push() {
  const PhaseScope phase(Phase::backward);
  const auto start = detail::OverlapClock::now();
  const auto slot = slot_of(completed_++);
  for (const auto& flat : flats_) flat->push(slot, *options_.aggregate, pushes_[slot].factor, pushes_[slot].where);
  clock_.has_travelled(start);
  if (options_.staleness == 0) clock_.has_waited(start);
}

void UpdatingServers::pull() {
  if (flats_.empty()) return;
  const auto start = detail::OverlapClock::now();
  const std::lock_guard lock(pulled_);
  for (const auto& flat : flats_) flat->pull();
  arrived_ = completed_;
  clock_.has_travelled(start);
  if (options_.staleness == 0) clock_.has_waited(start);
}

/// Takes the newest weights. Where they are just arriving, those that this rank has do if they lack few enough updates.
void UpdatingServers::take_weights() {
  if (!is_fresh_) pull();
  is_fresh_ = true;
  std::unique_lock lock(pulled_, std::try_to_lock);
  if (!lock.owns_lock()) {
    if (begun_ - installed_ <= options_.staleness) return;
    lock.lock();
  }
  for (const auto& flat : flats_) flat->install();
  installed_ = arrived_;
}

void UpdatingServers::after_step() { pull(); }

void UpdatingServers::unify(const std::vector<Parameter>&) {
  take_weights();
  detail::broadcast_all(buffers_, 0, servers_.group());
}

int64_t UpdatingServers::push_bytes() const {
  int64_t most = 0;
  for (const auto& flat : flats_) most = std::max(most, flat->push_bytes(*options_.aggregate));
  return most;
}

SyncMemory UpdatingServers::memory() {
  SyncMemory memory{.owned_gradients = owned_gradients()};
  if (options_.staleness == 0) {
    memory.exchange = push_bytes();
    return memory;
  }
  memory.beside = push_bytes();
  for (const auto& flat : flats_) memory.beside = std::max(memory.beside, flat->pull_bytes());
  return memory;
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
