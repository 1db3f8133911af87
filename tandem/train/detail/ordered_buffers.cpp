#include "tandem/train/detail/ordered_buffers.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"

namespace tandem::train::detail {
namespace {

void copy_from(const std::vector<Parameter>& buffers, const std::vector<Tensor>& to) {
  for (size_t i = 0; i < buffers.size(); ++i) to[i].copy_(buffers[i].tensor);
}

/// Past autograd: backward is still to come, and at::batch_norm() has saved its running statistics for it, of which the
/// backward of a batch reads nothing.
void copy_to(const std::vector<Parameter>& buffers, const std::vector<Tensor>& from) {
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].tensor.variable_data().copy_(from[i]);
}

/// Calls run(buffer, its place in a row of numbers) for each buffer of floating-point numbers.
template <class Run>
void for_each_place(const std::vector<Parameter>& buffers, const Tensor& row, const Run& run) {
  int64_t at = 0;
  for (const auto& [name, tensor, placement] : buffers) {
    if (!tensor.is_floating_point()) continue;
    run(tensor, row.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

int64_t numbers_of(const std::vector<Parameter>& buffers) {
  int64_t count = 0;
  for (const auto& buffer : buffers) count += buffer.tensor.is_floating_point() ? buffer.tensor.numel() : 0;
  return count;
}

}  // namespace

OrderedBuffers::OrderedBuffers(std::vector<Parameter> buffers, int64_t shards) : buffers_(std::move(buffers)) {
  const CategoryScope scope(Category::buffers);
  before_ = copies_of(buffers_);
  first_ = copies_of(buffers_);
  shards_ = at::zeros({shards, numbers_of(buffers_) + 1}, at::kDouble);
}

void OrderedBuffers::before_step() {
  copy_from(buffers_, before_);
  ended_ = 0;
}

void OrderedBuffers::end_shard(int64_t samples) {
  const at::NoGradGuard no_grad;
  if (ended_ == 0) copy_from(buffers_, first_);
  const auto row = shards_[ended_++];
  for_each_place(buffers_, row, [](const Tensor& buffer, const Tensor& place) { place.copy_(buffer); });
  row[-1].fill_(samples);
  copy_to(buffers_, before_);
}

void OrderedBuffers::end_step(comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  const auto ones = std::vector<int64_t>(group.size(), 1);
  const auto all = comm::all_gather(shards_.unsqueeze(1), group, 1, ones).flatten(0, 1);
  const auto samples = all.select(1, -1);
  const double count = samples.sum().item<double>();  // whole numbers: exact in any order
  const auto mean = at::zeros({all.size(1)}, all.options());
  for (int64_t shard = 0; shard < all.size(0); ++shard) mean.add_(all[shard], samples[shard].item<double>() / count);
  copy_to(buffers_, first_);
  for_each_place(buffers_, mean, [](const Tensor& buffer, const Tensor& place) { buffer.copy_(place); });
}

}  // namespace tandem::train::detail
