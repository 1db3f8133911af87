#include "tandem/train/detail/micro_batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "tandem/comm/split.h"

namespace tandem::train::detail {
namespace {

data::Batch narrowed(const data::Batch& batch, int64_t begin, int64_t size, int64_t global_size) {
  return {batch.images.narrow(0, begin, size), batch.labels.narrow(0, begin, size), global_size,
          batch.first_sample + begin};
}

}  // namespace

std::vector<BatchPart> cut(const data::Batch& batch, int64_t parts, const comm::ProcessGroup& data) {
  const auto sizes = comm::split_sizes(batch.global_size, data.size());
  const int64_t count = std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, *std::ranges::max_element(sizes)));
  if (count == 1) return {{batch, sizes, 1, {}}};
  std::vector<BatchPart> result(count);
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    auto& part = result[i];
    for (const int64_t size : sizes) part.sizes.push_back(comm::split_sizes(size, static_cast<int>(count))[i]);
    const int64_t all = std::accumulate(part.sizes.begin(), part.sizes.end(), int64_t{0});
    const int64_t own = part.sizes[data.rank()];
    part.batch = narrowed(batch, begin, own, all);
    part.share = static_cast<double>(all) / static_cast<double>(batch.global_size);
    part.place = {i, count};
    begin += own;
  }
  return result;
}

}  // namespace tandem::train::detail
