#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace tandem::comm {

/// What one operation has sent so far.
struct WireCount {
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// Counts, for one rank, calls and payload bytes per operation.
///
/// Bytes are those that the rank must send in an optimal algorithm, whatever the backend does (S: bytes of the tensor,
/// own: bytes of the rank's part of it, N ranks):
///   broadcast       root (N > 1): S; others 0          all_gather   (N - 1) * own
///   all_reduce      (S - own) + (N - 1) * own          gather       others: own; root 0
///   reduce_scatter  S - own                            scatter      root: S - own; others 0
///   barrier         0
/// all_reduce and reduce_scatter split S as split_sizes() does. A group of one sends nothing.
/// Safe to use from several threads.
class WireMeter {
 public:
  void add(const std::string& operation, int64_t bytes);
  std::map<std::string, WireCount> counts() const;
  void reset();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, WireCount> counts_;
};

}  // namespace tandem::comm
