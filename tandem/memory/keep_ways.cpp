#include "tandem/memory/keep_ways.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/base/device_kernels.h"
#include "tandem/kernels/block_codes.h"
#include "tandem/kernels/gpu_kernels.h"
#include "tandem/memory/gpu_launch.h"

namespace tandem::memory {
namespace {

bool is_wide(const Tensor& tensor) { return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble; }

std::vector<Tensor> to_bf16(const Tensor& numbers) { return {numbers.to(at::kBFloat16)}; }

Tensor of_whole(const std::vector<Tensor>& parts, int64_t /*count*/, const at::TensorOptions& options) {
  return parts[0].to(options);
}

/// Calls work(first block, number of its first element, elements) for parts of the blocks, on several threads.
template <class Work>
void for_blocks(int64_t count, const Work& work) {
  constexpr int64_t kGrain = 256;  // blocks
  at::parallel_for(0, kernels::code_blocks(count), kGrain, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kernels::kCodeBlock;
    work(begin, first, std::min(count, end * kernels::kCodeBlock) - first);
  });
}

/// Where kernels are: here, or on the host.
Tensor where_kernels_are(const Tensor& x) { return have_kernels(Kernels::codes, x) ? x : x.cpu(); }

/// The codes of kernels/block_codes.h.
std::vector<Tensor> to_int8(const Tensor& numbers) {
  const auto x = where_kernels_are(numbers.to(at::kFloat)).contiguous();
  const int64_t count = x.numel();
  const auto codes = at::empty({count}, x.options().dtype(at::kChar)),
             scales = at::empty({kernels::code_blocks(count)}, x.options());
  if (!x.is_cpu()) {
    const GpuLaunch launch(x);
    GpuLaunch::check(kernels::gpu::encode(x.const_data_ptr<float>(), count, codes.mutable_data_ptr<int8_t>(),
                                          scales.mutable_data_ptr<float>(), launch.stream()));
    return {codes, scales};
  }
  for_blocks(count, [&](int64_t block, int64_t first, int64_t own) {
    kernels::encode(x.const_data_ptr<float>() + first, own, codes.mutable_data_ptr<int8_t>() + first,
                    scales.mutable_data_ptr<float>() + block);
  });
  return {codes.to(numbers.device()), scales.to(numbers.device())};
}

Tensor of_int8(const std::vector<Tensor>& parts, int64_t count, const at::TensorOptions& options) {
  const auto scales = where_kernels_are(parts[1]), codes = parts[0].to(scales.device());
  const auto x = at::empty({count}, scales.options());
  if (!x.is_cpu()) {
    const GpuLaunch launch(x);
    GpuLaunch::check(kernels::gpu::decode(codes.const_data_ptr<int8_t>(), scales.const_data_ptr<float>(), count,
                                          x.mutable_data_ptr<float>(), launch.stream()));
    return x.to(options);
  }
  for_blocks(count, [&](int64_t block, int64_t first, int64_t own) {
    kernels::decode(codes.const_data_ptr<int8_t>() + first, scales.const_data_ptr<float>() + block, own,
                    x.mutable_data_ptr<float>() + first);
  });
  return x.to(options);
}

bool is_elsewhere(const Tensor& tensor) { return !tensor.is_cpu(); }

std::vector<Tensor> to_host(const Tensor& numbers) { return {numbers.cpu()}; }

}  // namespace

const std::vector<KeepWay>& keep_ways() {
  static const std::vector<KeepWay> ways = {
      {.name = "bf16", .is_lossy = true, .bytes_moved = 3, .can_keep = is_wide, .pack = to_bf16, .unpack = of_whole},
      {.name = "int8",
       .is_lossy = true,
       .bytes_moved = 7,  // packing reads the numbers twice
       .can_keep = is_wide,
       .pack = to_int8,
       .unpack = of_int8},
      {.name = "offload",
       .frees_device = true,
       .bytes_moved = 2,
       .can_keep = is_elsewhere,
       .pack = to_host,
       .unpack = of_whole}};
  return ways;
}

const KeepWay& keep_way(std::string_view name) {
  const auto way = std::ranges::find(keep_ways(), name, &KeepWay::name);
  TORCH_CHECK_VALUE(way != keep_ways().end(), "way to keep is '", name, "', wanted bf16, int8 or offload");
  return *way;
}

}  // namespace tandem::memory
