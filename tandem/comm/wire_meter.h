#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tandem::comm {

struct WireCount {
  int64_t calls = 0;
  int64_t bytes = 0;
  bool operator==(const WireCount&) const = default;
};

/// What one operation has sent so far.
struct OperationCount : WireCount {
  std::array<WireCount, 3> phases = {};  // by Phase; they add up to the totals
  std::vector<int64_t> to_rank;          // bytes to each rank of the world; they add up to `bytes`
};

/// Counts, for one rank, calls and payload bytes per operation, phase and peer.
///
/// Bytes are those that the rank must send in an optimal algorithm (wire_bytes.h), whatever the backend does. Sizes
/// that the ranks exchange first count as operations of their own; headers of messages do not count. A group of one
/// sends nothing and counts nothing. Thread-safe.
class WireMeter {
 public:
  /// Counts one call. `to_member[i]`: bytes for world rank `members[i]`.
  void add(const std::string& operation, std::span<const int64_t> to_member, std::span<const int> members);

  std::map<std::string, OperationCount> counts() const;
  void reset();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, OperationCount> counts_;
};

}  // namespace tandem::comm
