#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::comm {

/// Payload bytes that rank `rank` of `size` must send to each rank in an optimal algorithm, as the wire meter counts
/// them. Only arithmetic, so that a plan can be counted without running it. S: bytes of the whole tensor.
struct WireBytes {
  int rank = 0, size = 1;

  /// Along the chain root, root + 1, ...: each rank but the last sends S to the next one.
  std::vector<int64_t> broadcast(int root, int64_t bytes) const;

  /// Along the same chain backwards: each rank but the root sends its sum of S bytes to the next one.
  std::vector<int64_t> reduce_sum(int root, int64_t bytes) const;

  /// Each rank sums its part of the elements and sends the result to the others: 2 (N - 1) / N S per rank.
  std::vector<int64_t> all_reduce(int64_t elements, int64_t element_bytes) const;

  /// `own` bytes to the root.
  std::vector<int64_t> gather(int root, int64_t own) const;

  /// `parts[j]` bytes from the root to rank j.
  std::vector<int64_t> scatter(int root, std::span<const int64_t> parts) const;

  /// `own` bytes to each other rank.
  std::vector<int64_t> all_gather(int64_t own) const;

  /// `parts[j]` bytes to rank j: reduce_scatter and all_to_all.
  std::vector<int64_t> exchange(std::span<const int64_t> parts) const;

  std::vector<int64_t> send(int peer, int64_t bytes) const;

  std::vector<int64_t> nothing() const { return std::vector<int64_t>(size, 0); }
};

}  // namespace tandem::comm
