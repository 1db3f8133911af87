#include "tandem/base/computing_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>

namespace tandem {
namespace {

std::atomic<c10::DeviceType> computing{c10::DeviceType::CPU};

}  // namespace

void set_computing_device(c10::DeviceType type) { computing = type; }

std::optional<c10::Stream> own_stream() {
  const auto type = computing.load();
  if (type == c10::DeviceType::CPU) return std::nullopt;
  const c10::impl::VirtualGuardImpl guard(type);
  return guard.getStream(guard.getDevice());
}

}  // namespace tandem
