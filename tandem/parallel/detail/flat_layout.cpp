#include "tandem/parallel/detail/flat_layout.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace tandem::parallel::detail {
namespace {

std::vector<int64_t> memory_order(const Tensor& tensor) {
  std::vector<int64_t> dims(static_cast<size_t>(tensor.dim()));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  std::ranges::stable_sort(dims, [&](int64_t a, int64_t b) { return tensor.stride(a) > tensor.stride(b); });
  return dims;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<Tensor>& tensors, int shards) : shards_(shards) {
  TORCH_CHECK_VALUE(shards >= 1, "flat: shards is ", shards, ", wanted 1 or more");
  int64_t first = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), "flat: tensor ", i, " has sizes ", tensor.sizes(),
                      " and strides ", tensor.strides(), ", wanted numbers that lie next to each other");
    TORCH_CHECK_VALUE(tensor.dtype() == tensors[0].dtype() && tensor.device() == tensors[0].device(), "flat: tensor ",
                      i, " is ", tensor.dtype(), " on ", tensor.device(), ", wanted ", tensors[0].dtype(), " on ",
                      tensors[0].device(), " as the first");
    places_.push_back({tensor.sizes().vec(), tensor.strides().vec(), memory_order(tensor), first, tensor.numel()});
    first += tensor.numel();
  }
  if (!tensors.empty()) options_ = tensors[0].options().requires_grad(false).memory_format(std::nullopt);
  count_ = first;
  shard_size_ = (first + shards - 1) / shards;
}

Tensor FlatLayout::padding(const Tensor& flat) const { return flat.narrow(0, count_, size() - count_); }

Tensor FlatLayout::whole(const Tensor& flat, size_t i) const {
  const auto& place = places_.at(i);
  return flat.as_strided(place.sizes, place.strides, flat.storage_offset() + place.first);
}

std::vector<FlatLayout::Part> FlatLayout::parts(size_t i, int shard) const {
  const auto& place = places_.at(i);
  const int64_t begin = std::max(place.first, shard * shard_size_);
  const int64_t end = std::min(place.first + place.count, (shard + 1) * shard_size_);
  if (begin >= end) return {};
  std::vector<int64_t> sizes;
  for (const auto dim : place.order) sizes.push_back(place.sizes[static_cast<size_t>(dim)]);
  std::vector<Part> parts;
  int64_t first = begin - shard * shard_size_;
  for (const auto& ordered : boxes_of_range(sizes, begin - place.first, end - begin)) {
    Box box = whole_box(place.sizes);
    for (size_t k = 0; k < place.order.size(); ++k) {
      box.first[static_cast<size_t>(place.order[k])] = ordered.first[k];
      box.count[static_cast<size_t>(place.order[k])] = ordered.count[k];
    }
    const int64_t count = volume(box);
    parts.push_back({std::move(box), first});
    first += count;
  }
  return parts;
}

Tensor FlatLayout::part(const Tensor& shard, size_t i, const Part& part) const {
  const auto& order = places_.at(i).order;
  std::vector<int64_t> strides(order.size());
  int64_t inner = 1;
  for (size_t k = order.size(); k-- > 0;) {
    strides[static_cast<size_t>(order[k])] = inner;
    inner *= part.box.count[static_cast<size_t>(order[k])];
  }
  return shard.as_strided(part.box.count, strides, shard.storage_offset() + part.first);
}

FlatLayout::Shards FlatLayout::shards_of(size_t i) const {
  const auto& place = places_.at(i);
  if (place.count == 0) return {};
  return {static_cast<int>(place.first / shard_size_), static_cast<int>((place.first + place.count - 1) / shard_size_)};
}

}  // namespace tandem::parallel::detail
