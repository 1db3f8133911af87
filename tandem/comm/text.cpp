#include "tandem/comm/text.h"

#include <ATen/ATen.h>

#include <cstring>

#include "tandem/comm/collectives.h"

namespace tandem::comm {

std::string broadcast_text(const std::string& own, int root, ProcessGroup& group, Where where) {
  if (group.size() == 1) return own;
  const auto length = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
  broadcast_(length, root, group, where);
  const auto bytes = at::zeros({length.item<int64_t>()}, at::kByte);
  if (group.rank() == root) std::memcpy(bytes.data_ptr(), own.data(), own.size());
  broadcast_(bytes, root, group, where);
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

std::string first_text(const std::string& own, ProcessGroup& group, Where where) {
  const auto candidate = at::full({1}, own.empty() ? group.size() : group.rank(), at::kLong);
  const auto first = all_reduce(candidate, group, Reduce::min, where).item<int64_t>();
  return first == group.size() ? "" : broadcast_text(own, static_cast<int>(first), group, where);
}

}  // namespace tandem::comm
