#include "tandem/comm/wire_bytes.h"

#include "tandem/comm/split.h"

namespace tandem::comm {

std::vector<int64_t> WireBytes::send(int peer, int64_t bytes) const {
  auto to = nothing();
  if (peer != rank) to[peer] = bytes;
  return to;
}

std::vector<int64_t> WireBytes::broadcast(int root, int64_t bytes) const {
  const int next = (rank + 1) % size;
  return next == root ? nothing() : send(next, bytes);
}

std::vector<int64_t> WireBytes::reduce_sum(int root, int64_t bytes) const {
  return rank == root ? nothing() : send((rank + size - 1) % size, bytes);
}

std::vector<int64_t> WireBytes::all_reduce(int64_t elements, int64_t element_bytes) const {
  const auto parts = split_sizes(elements, size);
  auto to = nothing();
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) to[peer] = (parts[peer] + parts[rank]) * element_bytes;
  }
  return to;
}

std::vector<int64_t> WireBytes::gather(int root, int64_t own) const { return send(root, own); }

std::vector<int64_t> WireBytes::scatter(int root, std::span<const int64_t> parts) const {
  return rank == root ? exchange(parts) : nothing();
}

std::vector<int64_t> WireBytes::all_gather(int64_t own) const {
  std::vector<int64_t> to(size, own);
  to[rank] = 0;
  return to;
}

std::vector<int64_t> WireBytes::exchange(std::span<const int64_t> parts) const {
  std::vector<int64_t> to(parts.begin(), parts.end());
  to[rank] = 0;
  return to;
}

}  // namespace tandem::comm
