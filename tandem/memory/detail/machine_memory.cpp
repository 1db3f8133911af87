#include "tandem/memory/detail/machine_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace tandem::memory::detail {
namespace {

/// "max", or a file that is not there: no limit.
int64_t limit_in(const char* path) {
  int64_t bytes = 0;
  return std::ifstream(path) >> bytes ? bytes : std::numeric_limits<int64_t>::max();
}

}  // namespace

int64_t machine_memory() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return std::numeric_limits<int64_t>::max();
  const auto own = static_cast<int64_t>((info.totalram + info.totalswap) * info.mem_unit);
  return std::min(
      {own, limit_in("/sys/fs/cgroup/memory.max"), limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
}

}  // namespace tandem::memory::detail
