#pragma once
#include "tandem/base/tensor.h"
#include "tandem/classifier/detail/score_passes.h"
#include "tandem/kernels/gpu_kernels.h"
#include "tandem/memory/gpu_launch.h"

// What the head's files share to compute where their tensors are.
namespace tandem::classifier::detail {

/// The tensor there, or a copy of it that nobody waits for. One on the CPU must not be changed afterwards. CUDA waits
/// for what it copies out of memory that is not page-locked, unless that is little.
inline Tensor on_device(const Tensor& x, c10::Device device) {
  const auto& from = device.is_cuda() && x.is_cpu() ? x.pin_memory() : x;
  return from.to(device, /*non_blocking=*/true);
}

/// body(i) for each i < count, where `x` is: on the calling thread, or on the device's current stream.
template <class Body>
void for_each_on(const Tensor& x, int64_t count, const Body& body) {
  if (count == 0) return;
  if (x.is_cpu()) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  const memory::GpuLaunch launch(x);
  memory::GpuLaunch::check(kernels::gpu::for_each(body, count, launch.stream()));
}

/// body(T, S): the type of the numbers, and the type in which a block's products are stored.
template <class Body>
void dispatch_block(const Tensor& products, const Body& body) {
  switch (products.scalar_type()) {
    case at::kBFloat16:
      return body(float{}, uint16_t{});
    case at::kFloat:
      return body(float{}, float{});
    case at::kDouble:
      return body(double{}, double{});
    default:
      TORCH_CHECK_TYPE(false, "softmax loss: products are ", products.scalar_type(),
                       ", wanted Float, Double or BFloat16");
  }
}

template <class T>
kernels::ShareRows<T> share_rows(const Shares& shares) {
  return {shares.log_sum.const_data_ptr<T>(), shares.share.const_data_ptr<T>(), shares.floor.const_data_ptr<T>()};
}

}  // namespace tandem::classifier::detail
