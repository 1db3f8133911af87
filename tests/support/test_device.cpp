#include "tests/support/test_device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace tandem::test {
namespace {

using at::Tensor;

constexpr size_t kRoom = size_t{1} << 40, kPage = 4096;  // of addresses; none is used twice

// The operators are those of PrivateUse1. Module::to(), which moves parameters in place, knows only devices of
// libtorch's own, of which HPU is one that nobody here has.
constexpr c10::DispatchKeySet kKeys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::HPU});

thread_local c10::DeviceIndex current = 0;

/// Devices of which each has one stream, which never waits.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return 8; }
  at::Device getDevice() const override { return {at::kPrivateUse1, current}; }
  void setDevice(at::Device device) const override { current = device.index(); }
  void uncheckedSetDevice(at::Device device) const noexcept override { current = device.index(); }
  at::Device exchangeDevice(at::Device device) const override {
    return {at::kPrivateUse1, std::exchange(current, device.index())};
  }
  c10::Stream getStream(at::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(at::Device device) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
};

/// What stands behind a pointer of the device.
struct Block {
  std::vector<std::byte> bytes;
};

/// Addresses without memory.
char* next_address(size_t bytes) {
  static auto* const begin =
      static_cast<char*>(mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  static std::atomic<size_t> used{0};
  TORCH_CHECK(begin != MAP_FAILED, "test device: no addresses");
  return begin + used.fetch_add((bytes + kPage - 1) / kPage * kPage);
}

class BlindAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{std::vector<std::byte>(bytes)};
    return {bytes == 0 ? nullptr : next_address(bytes), block, &release, Guard().getDevice()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "test device: raw copy"); }

 private:
  static void release(void* block) { delete static_cast<Block*>(block); }
};

BlindAllocator allocator;

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

/// A view of the tensor's numbers for the CPU.
Tensor numbers_of(const Tensor& x) {
  if (x.is_cpu()) return x;
  auto* block = static_cast<Block*>(x.storage().data_ptr().get_context());
  auto* first = block->bytes.data() + x.storage_offset() * static_cast<int64_t>(x.itemsize());
  return at::from_blob(first, x.sizes(), x.strides(), at::TensorOptions(x.scalar_type()));
}

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &allocator, kKeys, type.value_or(at::kFloat), format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &allocator, kKeys, type.value_or(at::kFloat));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  numbers_of(to).copy_(numbers_of(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) to.set_data(at::empty(from.sizes(), to.options()));
  return copy_from(from, to, false);
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                   int64_t groups) {
  const auto own_bias = bias && bias->defined() ? std::optional(bias->cpu()) : std::nullopt;
  return at::convolution(x.cpu(), weight.cpu(), own_bias, stride, padding, dilation, transposed, output_padding, groups)
      .to(x.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& gradient, const Tensor& x, const Tensor& weight,
                                                        at::IntArrayRef stride, at::IntArrayRef padding,
                                                        at::IntArrayRef dilation, bool transposed,
                                                        at::IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> wanted) {
  const std::vector<int64_t> bias_sizes = {gradient.size(1)};
  const auto [of_x, of_weight, of_bias] =
      at::convolution_backward(gradient.cpu(), x.cpu(), weight.cpu(), at::OptionalIntArrayRef(bias_sizes), stride,
                               padding, dilation, transposed, output_padding, groups, wanted);
  const auto back = [&](const Tensor& own) { return own.defined() ? own.to(x.device()) : own; };
  return {back(of_x), back(of_weight), back(of_bias)};
}

/// libtorch's schema does not tell that the running statistics are written.
std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias, const std::optional<Tensor>& mean,
                                              const std::optional<Tensor>& variance, bool training, double momentum,
                                              double epsilon) {
  const auto here = [](const std::optional<Tensor>& own) {
    return own && own->defined() ? std::optional(numbers_of(*own)) : std::nullopt;
  };
  const auto [out, saved_mean, saved_inverse] =
      at::native_batch_norm(x.cpu(), here(weight), here(bias), here(mean), here(variance), training, momentum, epsilon);
  return {out.to(x.device()), saved_mean.to(x.device()), saved_inverse.to(x.device())};
}

/// As on a GPU, only a tensor without dims may come from the CPU.
void check_device(const c10::OperatorHandle& op, const Tensor& x, std::optional<at::Device>& first) {
  if (!x.defined() || (x.is_cpu() && x.dim() == 0)) return;
  if (!first) first = x.device();
  TORCH_CHECK(x.device() == *first, "test device: ", op.schema().name(), " mixes ", *first, " and ", x.device());
}

void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::optional<at::Device> first;
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor()) check_device(op, value.toTensor(), first);
    if (!value.isList()) continue;
    for (const at::IValue& item : value.toListRef()) {
      if (item.isTensor()) check_device(op, item.toTensor(), first);
    }
  }
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_devices(op, *stack);
  at::native::cpu_fallback(op, stack);
}

}  // namespace

void install_test_device() {
  static std::once_flag once;
  std::call_once(once, [] {
    static Hooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::register_privateuse1_backend("blind");
    c10::SetAllocator(at::kPrivateUse1, &allocator);
    static const Guard guard;
    static const c10::impl::DeviceGuardImplRegistrar registrar(at::kPrivateUse1, &guard);
    static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    others.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
    static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    aten.impl("empty.memory_format", &empty);
    aten.impl("empty_strided", &empty_strided);
    aten.impl("_copy_from", &copy_from);
    aten.impl("_copy_from_and_resize", &copy_from_and_resize);
    aten.impl("as_strided", &at::native::as_strided_tensorimpl);
    aten.impl("view", &at::native::view);
    aten.impl("unfold", &at::native::unfold);
    aten.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);  // reads nothing
    aten.impl("_reshape_alias", &at::native::_reshape_alias);
    aten.impl("convolution_overrideable", &convolution);
    aten.impl("convolution_backward_overrideable", &convolution_backward);
    aten.impl("native_batch_norm", &batch_norm);
    static torch::Library sparse(torch::Library::IMPL, "aten", c10::DispatchKey::SparsePrivateUse1, __FILE__, __LINE__);
    sparse.impl("_sparse_coo_tensor_with_dims_and_tensors", &at::native::new_with_dims_and_tensor_sparse_symint);
    sparse.impl("_indices", &at::native::_indices_sparse);
    sparse.impl("_values", &at::native::_values_sparse);
    sparse.impl("is_coalesced", &at::native::is_coalesced_sparse);
    sparse.impl("_coalesced_", &at::native::_coalesced_sparse_);
    sparse.impl("_nnz", &at::native::_nnz_sparse);
    sparse.impl("sparse_dim", &at::native::sparse_dim_sparse);
    sparse.impl("dense_dim", &at::native::dense_dim_sparse);
  });
}

}  // namespace tandem::test
