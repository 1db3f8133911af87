#include "tandem/memory/detail/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace tandem::memory::detail {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

/// "max", or a file that is not there: no limit.
int64_t limit_in(const char* path) {
  int64_t bytes = 0;
  return std::ifstream(path) >> bytes ? bytes : kUnknown;
}

/// Memory that can be had without swapping, and free swap space.
int64_t free_of_all() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kibibytes = 0, sum = 0;
  while (file >> name >> kibibytes && std::getline(file, unit)) {
    if (name == "MemAvailable:" || name == "SwapFree:") sum += kibibytes * 1024;
  }
  return sum > 0 ? sum : kUnknown;
}

}  // namespace

int64_t machine_memory() {
  const auto bytes = std::min(
      {free_of_all(), limit_in("/sys/fs/cgroup/memory.max"), limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
  return bytes - bytes / 32;
}

}  // namespace tandem::memory::detail
