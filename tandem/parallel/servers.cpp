#include "tandem/parallel/servers.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"

namespace tandem::parallel {

void check_servers(int apart, int ranks) {
  if (apart >= 0 && apart < ranks) return;
  throw SettingsError("servers is " + std::to_string(apart) + " with " + std::to_string(ranks) +
                          (ranks == 1 ? " rank" : " ranks") + ", wanted 0.." + std::to_string(ranks - 1) +
                          ", so that a rank is left to train",
                      "add ranks, or set servers=0: each rank trains and serves");
}

Servers::Servers(comm::ProcessGroup& group, int apart) : group_(group), apart_(apart) {
  check_servers(apart, group.size());
}

std::vector<int64_t> Servers::parts(int64_t n) const {
  auto parts = comm::split_sizes(n, count());
  parts.insert(parts.begin(), static_cast<size_t>(group_.size() - count()), 0);
  return parts;
}

Tensor Servers::own_part(const Tensor& numbers) const {
  const auto [begin, end] = comm::split_range(numbers.numel(), count(), own_number());
  return numbers.slice(0, begin, end);
}

std::vector<int64_t> Servers::of_each_worker(int64_t numbers) const {
  std::vector<int64_t> sizes(static_cast<size_t>(group_.size()), 0);
  std::fill_n(sizes.begin(), workers(), numbers);
  return sizes;
}

Tensor Servers::push(const Tensor& numbers, flight::Where where) const {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  const auto parts = this->parts(numbers.numel());
  const int64_t own = parts[group_.rank()];
  const bool brings = is_worker();
  const auto sent = brings ? parts : std::vector<int64_t>(parts.size(), 0);
  const auto pushed =
      comm::all_to_all(brings ? numbers : numbers.narrow(0, 0, 0), group_, 0, sent, of_each_worker(own), where);
  return is_server() ? pushed.view({workers(), own}) : pushed;
}

Tensor Servers::pull(const Tensor& part, int64_t n, flight::Where where) const {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  const auto parts = this->parts(n);
  if (!are_apart()) return comm::all_gather(part, group_, 0, parts, where);
  const std::vector<int64_t> nothing(parts.size(), 0);
  if (is_worker()) return comm::all_to_all(part.narrow(0, 0, 0), group_, 0, nothing, parts, where);
  return comm::all_to_all(part.repeat({workers()}), group_, 0, of_each_worker(part.numel()), nothing, where);
}

}  // namespace tandem::parallel
