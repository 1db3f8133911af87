#include "tandem/comm/connect.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <csignal>

#include "tandem/comm/local_backend.h"

namespace tandem::comm {
namespace {

c10::intrusive_ptr<c10d::ProcessGroup> wrap(c10::intrusive_ptr<c10d::Backend> backend,
                                            c10d::ProcessGroup::BackendType type, int rank, int size) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  group->setDefaultBackend(type);
  group->setBackend(c10::DeviceType::CPU, type, std::move(backend));
  return group;
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> LocalWorld::connect(const std::string& name, int rank, int size) {
  std::shared_ptr<LocalHub> hub;
  {
    const std::lock_guard lock(mutex_);
    auto& slot = hubs_[name];
    if (!slot) slot = std::make_shared<LocalHub>(size, timeout_);
    if (abort_reason_) slot->abort(*abort_reason_);
    hub = slot;
  }
  return wrap(c10::make_intrusive<LocalBackend>(hub, rank), c10d::ProcessGroup::BackendType::CUSTOM, rank, size);
}

void LocalWorld::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_) abort_reason_ = reason;
  for (auto& [name, hub] : hubs_) hub->abort(reason);
}

ProcessGroup::Connect gloo_connect(c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout) {
  // Gloo writes to sockets whose peer may be gone; that must become an error here, not a signal that ends the process.
  std::signal(SIGPIPE, SIG_IGN);
  return [store, timeout](const std::string& name, int rank, int size) {
    auto prefix = c10::make_intrusive<c10d::PrefixStore>("tandem/" + name, store);
    auto options = c10d::ProcessGroupGloo::Options::create_default(timeout);
    return wrap(c10::make_intrusive<c10d::ProcessGroupGloo>(prefix, rank, size, options),
                c10d::ProcessGroup::BackendType::GLOO, rank, size);
  };
}

}  // namespace tandem::comm
