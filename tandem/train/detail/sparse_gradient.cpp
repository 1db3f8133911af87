#include "tandem/train/detail/sparse_gradient.h"

#include <ATen/ATen.h>

namespace tandem::train::detail {
namespace {

bool names_each_once(const Tensor& ids, int64_t rows) {
  const auto on_host = ids.to(at::kCPU).contiguous();
  std::vector<bool> seen(static_cast<size_t>(rows), false);
  for (int64_t i = 0; i < on_host.numel(); ++i) {
    auto was_seen = seen[static_cast<size_t>(on_host.const_data_ptr<int64_t>()[i])];
    if (was_seen) return false;
    was_seen = true;
  }
  return true;
}

}  // namespace

void join_rows(const Tensor& parameter) {
  auto& gradient = parameter.mutable_grad();
  if (!gradient.defined() || !gradient.is_sparse() || gradient.is_coalesced()) return;
  if (!names_each_once(gradient._indices().select(0, 0), gradient.size(0))) gradient = gradient.coalesce();
}

void join_rows(const std::vector<Parameter>& parameters) {
  for (const auto& parameter : parameters) join_rows(parameter.tensor);
}

}  // namespace tandem::train::detail
