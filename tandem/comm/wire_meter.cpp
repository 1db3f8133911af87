#include "tandem/comm/wire_meter.h"

namespace tandem::comm {

void WireMeter::add(const std::string& operation, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& count = counts_[operation];
  ++count.calls;
  count.bytes += bytes;
}

std::map<std::string, WireCount> WireMeter::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void WireMeter::reset() {
  const std::lock_guard lock(mutex_);
  counts_.clear();
}

}  // namespace tandem::comm
