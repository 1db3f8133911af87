#include "tandem/comm/connect.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <array>
#include <csignal>
#include <cstdlib>

#include "tandem/comm/detail/nccl.h"
#include "tandem/comm/detail/staged_backend.h"
#include "tandem/comm/local/device_backend.h"
#include "tandem/comm/segments/host_meeting.h"
#include "tandem/comm/segments/segment_backend.h"

namespace tandem::comm {
namespace {

/// `of_devices`: for tensors that are not on the CPU; null: they go through the host.
c10::intrusive_ptr<c10d::ProcessGroup> wrap(c10::intrusive_ptr<c10d::Backend> backend,
                                            c10d::ProcessGroup::BackendType type, int rank, int size,
                                            c10::intrusive_ptr<c10d::Backend> of_devices = nullptr) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  group->setDefaultBackend(type);
  if (!of_devices) of_devices = c10::make_intrusive<detail::StagedBackend>(backend);
  group->setBackend(c10::DeviceType::CPU, type, std::move(backend));
  // c10d keeps one backend for each type, and has no type for this one.
  for (const auto device : {c10::DeviceType::CUDA, c10::DeviceType::PrivateUse1}) {
    group->setBackend(device, c10d::ProcessGroup::BackendType::UNDEFINED, of_devices);
  }
  return group;
}

/// This machine's address on the route to `host`. Connecting a datagram socket chooses the address and sends nothing.
std::string own_address_towards(const std::string& host) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), "1", &wanted, &found) != 0) return host;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, freeaddrinfo);
  std::array<char, NI_MAXHOST> text{};
  for (const auto* one = found; one != nullptr && text[0] == '\0'; one = one->ai_next) {
    const int socket = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (socket >= 0 && ::connect(socket, one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
      getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    }
    if (socket >= 0) close(socket);
  }
  return text[0] == '\0' ? host : text.data();
}

/// By default Gloo takes the address of the machine's own name, which other machines may not reach.
c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> gloo_options(std::chrono::milliseconds timeout,
                                                                 const std::string& host) {
  using Gloo = c10d::ProcessGroupGloo;
  if (std::getenv("GLOO_SOCKET_IFNAME") != nullptr) return Gloo::Options::create_default(timeout);
  auto options = Gloo::Options::create(timeout);
  options->devices.push_back(Gloo::createDeviceForHostname(own_address_towards(host)));
  return options;
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> LocalWorld::connect(const std::string& name, int rank, int size) {
  std::shared_ptr<LocalHub> hub;
  {
    const std::lock_guard lock(mutex_);
    forget_ended();
    auto& slot = slots_[name];
    hub = slot.hub.lock();
    if (!hub) {
      hub = std::make_shared<LocalHub>(size, timeout_);
      slot = {hub, hub, size};
    }
    if (--slot.to_come == 0) slot.until_all_came.reset();
    if (abort_reason_) hub->abort(*abort_reason_);
  }
  const auto host = c10::make_intrusive<LocalBackend>(hub, rank);
  return wrap(host, c10d::ProcessGroup::BackendType::CUSTOM, rank, size,
              c10::make_intrusive<DeviceBackend>(hub, *host));
}

void LocalWorld::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_) abort_reason_ = reason;
  for (auto& [name, slot] : slots_) {
    if (const auto hub = slot.hub.lock()) hub->abort(reason);
  }
}

int LocalWorld::num_groups() {
  const std::lock_guard lock(mutex_);
  forget_ended();
  return static_cast<int>(slots_.size());
}

void LocalWorld::forget_ended() {
  std::erase_if(slots_, [](const auto& entry) { return entry.second.hub.expired(); });
}

c10::intrusive_ptr<c10d::ProcessGroup> connect_alone(int rank, int size, Transport transport) {
  const auto hub = std::make_shared<LocalHub>(size, std::chrono::minutes(1), rank);
  const auto host = c10::make_intrusive<LocalBackend>(hub, rank, transport);
  c10::intrusive_ptr<c10d::Backend> of_devices;
  if (transport == Transport::memory) of_devices = c10::make_intrusive<DeviceBackend>(hub, *host);
  return wrap(host, c10d::ProcessGroup::BackendType::CUSTOM, rank, size, std::move(of_devices));
}

ProcessGroup::Connect process_connect(c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout,
                                      Transport transport, const std::string& host) {
  TORCH_CHECK_VALUE(transport != Transport::memory,
                    "transport is memory between processes, wanted segments or sockets");
  // Gloo writes to sockets whose peer may be gone. This must be an error, not a signal that ends the process.
  std::signal(SIGPIPE, SIG_IGN);
  return [store, timeout, transport, host](const std::string& name, int rank, int size) {
    auto prefix = c10::make_intrusive<c10d::PrefixStore>("tandem/" + name, store);
    std::optional<HostMeeting> meeting;
    const bool waits_for_all = !c10d::getDefaultGlooLazyInit();  // as a meeting wants it of Gloo
    if (transport != Transport::sockets && size > 1 && waits_for_all) meeting.emplace(prefix, rank, size);
    c10::intrusive_ptr<c10d::Backend> backend =
        c10::make_intrusive<c10d::ProcessGroupGloo>(prefix, rank, size, gloo_options(timeout, host));
    auto type = c10d::ProcessGroup::BackendType::GLOO;
    if (auto stage = meeting ? meeting->stage(*backend, timeout) : nullptr) {
      backend = c10::make_intrusive<SegmentBackend>(rank, std::move(stage), std::move(backend));
      type = c10d::ProcessGroup::BackendType::CUSTOM;
    }
    auto group = wrap(std::move(backend), type, rank, size);
    detail::add_nccl(*group, prefix, timeout);
    return group;
  };
}

}  // namespace tandem::comm
