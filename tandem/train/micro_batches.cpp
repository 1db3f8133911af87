#include "tandem/train/micro_batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "tandem/comm/split.h"

namespace tandem::train {
namespace {

data::Batch narrowed(const data::Batch& batch, int64_t begin, int64_t size, int64_t global_size) {
  return {batch.images.narrow(0, begin, size), batch.labels.narrow(0, begin, size), global_size,
          batch.first_sample + begin};
}

}  // namespace

std::vector<BatchPart> cut(const data::Batch& batch, int64_t parts, const std::vector<int64_t>& sizes, int rank) {
  const int64_t count = std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, *std::ranges::max_element(sizes)));
  const int64_t own_samples = sizes[rank];
  if (count == 1) return {{batch, sizes, {1}, {0, 1, own_samples, batch.global_size}}};
  std::vector<BatchPart> result(count);
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    auto& part = result[i];
    for (const int64_t size : sizes) part.sizes.push_back(comm::split_sizes(size, static_cast<int>(count))[i]);
    const int64_t all = std::accumulate(part.sizes.begin(), part.sizes.end(), int64_t{0});
    const int64_t own = part.sizes[rank];
    part.batch = narrowed(batch, begin, own, all);
    part.shares = {static_cast<double>(all) / static_cast<double>(batch.global_size)};
    part.place = {i, count, own_samples, batch.global_size};
    begin += own;
  }
  return result;
}

std::vector<BatchPart> cut_shards(const data::Batch& batch, int64_t shards, const comm::ProcessGroup& data) {
  const auto all = comm::split_sizes(batch.global_size, static_cast<int>(shards));
  const int64_t ranks = data.size(), count = shards / ranks;
  const auto before = [&](int64_t shard) { return std::accumulate(all.begin(), all.begin() + shard, int64_t{0}); };
  const int64_t first_sample = batch.first_sample - before(data.rank());  // of the whole batch
  std::vector<BatchPart> result(count);
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    auto& part = result[i];
    part.sizes.assign(all.begin() + i * ranks, all.begin() + (i + 1) * ranks);
    for (const int64_t size : part.sizes) {
      part.shares.push_back(static_cast<double>(size) / static_cast<double>(batch.global_size));
    }
    const int64_t own = part.sizes[data.rank()];
    part.batch = narrowed(batch, begin, own, std::accumulate(part.sizes.begin(), part.sizes.end(), int64_t{0}));
    part.batch.first_sample = first_sample + before(i * ranks + data.rank());
    part.place = {i, count, batch.images.size(0), batch.global_size};
    begin += own;
  }
  return result;
}

Tensor start_of_backward(const Tensor& loss, const BatchPart& part, double scale) {
  auto shares = part.shares;
  for (auto& share : shares) share *= scale;
  if (loss.dim() == 0 && shares[0] == 1) return {};
  return at::tensor(shares, at::kDouble)
      .view(loss.sizes())
      .to(loss.options().requires_grad(false), /*non_blocking=*/true);
}

Context context_of(const BatchPart& part, Context around) {
  around.first_sample = part.batch.first_sample;
  return around;
}

}  // namespace tandem::train
