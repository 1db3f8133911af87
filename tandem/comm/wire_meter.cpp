#include "tandem/comm/wire_meter.h"

#include <algorithm>
#include <numeric>

#include "tandem/base/context.h"

namespace tandem::comm {

void WireMeter::add(const std::string& operation, std::span<const int64_t> to_member, std::span<const int> members) {
  const int64_t bytes = std::accumulate(to_member.begin(), to_member.end(), int64_t{0});
  const std::lock_guard lock(mutex_);
  auto& count = counts_[operation];
  for (auto* sum : {static_cast<WireCount*>(&count), &count.phases[static_cast<size_t>(current_context().phase)]}) {
    ++sum->calls;
    sum->bytes += bytes;
  }
  const auto last = *std::max_element(members.begin(), members.end());
  if (count.to_rank.size() <= static_cast<size_t>(last)) count.to_rank.resize(last + 1);
  for (size_t i = 0; i < members.size(); ++i) count.to_rank[members[i]] += to_member[i];
}

std::map<std::string, OperationCount> WireMeter::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void WireMeter::reset() {
  const std::lock_guard lock(mutex_);
  counts_.clear();
}

}  // namespace tandem::comm
