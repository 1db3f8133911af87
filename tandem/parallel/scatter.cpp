#include "tandem/parallel/scatter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "tandem/comm/split.h"

namespace tandem::parallel {
namespace {

/// The size along `dim` that the tensors have in common.
int64_t common_size(const std::vector<Tensor>& tensors, int64_t dim) {
  std::optional<int64_t> size;
  for (const auto& tensor : tensors) {
    if (tensor.dim() == 0) continue;
    const auto own = tensor.size(dim);
    TORCH_CHECK_VALUE(own == size.value_or(own), "scatter: a tensor has size ", own, " along dim ", dim,
                      ", and one before it ", *size, ", wanted equal sizes");
    size = own;
  }
  TORCH_CHECK_VALUE(size, "scatter: the input has no tensor with dims, wanted one to cut");
  return *size;
}

std::vector<int64_t> sizes_of(int64_t size, int devices, const ScatterOptions& options) {
  if (options.sizes.empty()) return chunk_sizes(size, devices);
  const auto& sizes = options.sizes;
  TORCH_CHECK_VALUE(static_cast<int>(sizes.size()) == devices, "scatter: there are ", sizes.size(),
                    " sizes, wanted one for each of ", devices, " devices");
  TORCH_CHECK_VALUE(std::ranges::all_of(sizes, [](int64_t one) { return one >= 0; }) && comm::sum_of(sizes) == size,
                    "scatter: the sizes have the sum ", comm::sum_of(sizes), ", wanted ", size,
                    ", the size of the input along dim ", options.dim, ", and none negative");
  return sizes;
}

Tensor weighted_mean(const std::vector<Tensor>& numbers, const std::vector<int64_t>& sizes) {
  TORCH_CHECK_VALUE(sizes.size() == numbers.size(), "gather: there are ", sizes.size(), " sizes for a mean of ",
                    numbers.size(), " parts, wanted one each");
  const auto all = static_cast<double>(std::max<int64_t>(1, comm::sum_of(sizes)));
  Tensor mean;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto term = numbers[i] * (static_cast<double>(sizes[i]) / all);
    mean = mean.defined() ? mean + term : term;
  }
  return mean;
}

Tensor joined(std::vector<Tensor> parts, c10::Device device, const GatherOptions& options) {
  for (auto& part : parts) part = part.to(device);
  if (parts[0].dim() > 0) return parts.size() == 1 ? parts[0] : at::cat(parts, options.dim);
  return options.scalars == Scalars::mean ? weighted_mean(parts, options.sizes) : at::stack(parts);
}

}  // namespace

std::vector<int64_t> chunk_sizes(int64_t size, int parts) {
  TORCH_CHECK_VALUE(parts >= 1, "chunks: number of parts is ", parts, ", wanted 1 or more");
  const int64_t most = std::max<int64_t>(1, (size + parts - 1) / parts);
  std::vector<int64_t> sizes;
  for (int64_t left = size; left > 0 || sizes.empty(); left -= most) sizes.push_back(std::min(left, most));
  return sizes;
}

std::vector<Nested> scatter(const Nested& input, std::span<const c10::Device> devices, const ScatterOptions& options) {
  const auto tensors = input.tensors();
  const auto sizes = sizes_of(common_size(tensors, options.dim), static_cast<int>(devices.size()), options);
  const bool is_empty = comm::sum_of(sizes) == 0;
  std::vector<Nested> parts;
  int64_t first = 0;
  for (size_t i = 0; i < sizes.size(); first += sizes[i++]) {
    if (sizes[i] == 0 && !(is_empty && i == 0)) continue;
    std::vector<Tensor> part;
    for (const auto& tensor : tensors) {
      part.push_back((tensor.dim() == 0 ? tensor : tensor.narrow(options.dim, first, sizes[i])).to(devices[i]));
    }
    parts.push_back(input.with(part));
  }
  return parts;
}

Nested gather(std::span<const Nested> values, c10::Device device, const GatherOptions& options) {
  TORCH_CHECK_VALUE(!values.empty(), "gather: there is no value, wanted one or more");
  const auto first = values[0].tensors();
  std::vector<std::vector<Tensor>> parts(first.size());
  for (const auto& value : values) {
    const auto tensors = value.tensors();
    TORCH_CHECK_VALUE(tensors.size() == first.size(), "gather: a replica gives ", tensors.size(),
                      " tensors, and the first ", first.size(), ", wanted the same form");
    for (size_t i = 0; i < tensors.size(); ++i) parts[i].push_back(tensors[i]);
  }
  std::vector<Tensor> all;
  for (auto& one : parts) all.push_back(joined(std::move(one), device, options));
  return values[0].with(all);
}

}  // namespace tandem::parallel
