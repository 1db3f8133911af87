#include "tests/device/test_device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
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
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/device/device_kernels.h"
#include "tests/device/device_memory.h"
#include "tests/device/device_work.h"

namespace tandem::test {
namespace {

using at::Tensor;

// The operators are those of PrivateUse1. Module::to(), which moves parameters in place, knows only devices of
// libtorch's own, of which HPU is one that nobody here has.
constexpr c10::DispatchKeySet kKeys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::HPU});

DelayedStreams& streams() { return DelayedStreams::get(); }

/// What libtorch's events hold a pointer to.
struct Event {
  DelayedStreams::Mark mark;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return 8; }
  at::Device getDevice() const override { return {at::kPrivateUse1, current_device()}; }
  void setDevice(at::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(at::Device device) const noexcept override { set_current_device(device.index()); }
  at::Device exchangeDevice(at::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Stream getStream(at::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(at::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override {
    static std::atomic<int> next{0};
    return c10::Stream(c10::Stream::UNSAFE, device, 1 + next++ % 64);
  }
  c10::Stream getNewStream(at::Device device, int) const override { return getStreamFromGlobalPool(device, false); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(stream); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    const auto mark = streams().mark(stream);
    if (*event == nullptr) {
      *event = new Event{mark};
    } else {
      static_cast<Event*>(*event)->mark = mark;
    }
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) streams().wait(stream, static_cast<Event*>(event)->mark);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || streams().is_done(static_cast<Event*>(event)->mark);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    streams().count_wait();
    streams().run_until(static_cast<Event*>(event)->mark);
  }
  bool queryStream(const c10::Stream& stream) const override { return streams().is_done(streams().mark(stream)); }
  void synchronizeStream(const c10::Stream& stream) const override {
    streams().count_wait();
    streams().run_until(streams().mark(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    streams().count_wait();
    streams().run_all(device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get_context() == nullptr) return;
    auto& block = block_of(data);
    if (stream != block.home) block.is_used_elsewhere = true;
  }
};

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::Device getDeviceFromPtr(void*) const override { return {at::kPrivateUse1, current_device()}; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(at::kCPU); }
};

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, blind_allocator(), kKeys, type.value_or(at::kFloat), format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, blind_allocator(), kKeys, type.value_or(at::kFloat));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool later) {
  copy_on_device(from, to, later);
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) to.set_data(at::empty(from.sizes(), to.options()));
  return copy_from(from, to, false);
}

void record_stream(Tensor& x, c10::Stream stream) { Guard().recordDataPtrOnStream(x.storage().data_ptr(), stream); }

Tensor or_none(const std::optional<Tensor>& x) { return x.value_or(Tensor()); }

std::optional<Tensor> if_any(const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

/// libtorch's schema does not tell that the running statistics are written.
std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias, const std::optional<Tensor>& mean,
                                              const std::optional<Tensor>& variance, bool training, double momentum,
                                              double epsilon) {
  const auto body = [=](const Tensors& of) {
    const auto [out, saved_mean, saved_inverse] = at::native_batch_norm(
        of[0], if_any(of[1]), if_any(of[2]), if_any(of[3]), if_any(of[4]), training, momentum, epsilon);
    return Tensors{out, saved_mean, saved_inverse};
  };
  const auto made =
      give_work("native_batch_norm", {x, or_none(weight), or_none(bias), or_none(mean), or_none(variance)},
                std::vector<bool>(5), false, body);
  return {made[0], made[1], made[2]};
}

/// In float, or for float64 in double, as a GPU does.
std::tuple<Tensor, Tensor> batch_norm_stats(const Tensor& x, double epsilon) {
  const auto body = [epsilon](const Tensors& of) {
    std::vector<int64_t> dims;
    for (int64_t dim = 0; dim < of[0].dim(); ++dim) {
      if (dim != 1) dims.push_back(dim);
    }
    const auto wide = of[0].to(of[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const auto [variance, mean] = at::var_mean(wide, dims, /*unbiased=*/false);
    return Tensors{mean, (variance + epsilon).rsqrt()};
  };
  const auto made = give_work("batch_norm_stats", {x}, {false}, false, body);
  return {made[0], made[1]};
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

/// The tensors of an operator's arguments, in order; what writes to one is told by the schema.
struct Arguments {
  Tensors tensors;
  std::vector<bool> written;
};

void collect(const at::IValue& value, bool is_written, Arguments& all) {
  if (value.isTensor()) {
    all.tensors.push_back(value.toTensor());
    all.written.push_back(is_written);
  } else if (value.isList()) {
    for (const at::IValue& item : value.toListRef()) collect(item, is_written, all);
  }
}

Arguments arguments_of(const c10::OperatorHandle& op, const std::vector<at::IValue>& values) {
  Arguments all;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    collect(values[i], alias != nullptr && alias->isWrite() && values[i].isTensor(), all);
  }
  return all;
}

/// The same value with other tensors.
at::IValue with_tensors(const at::IValue& value, const Tensors& tensors, size_t& next) {
  if (value.isTensor()) return tensors[next++];
  if (value.isDevice()) return at::Device(at::kCPU);
  if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const at::IValue& item : value.toListRef()) list.push_back(with_tensors(item, tensors, next));
  return list;
}

/// What an operator returns, as tensors; other values go to `others`.
Tensors call_on_host(const c10::OperatorHandle& op, const std::vector<at::IValue>& values, const Tensors& tensors,
                     c10::DispatchKey key, std::vector<at::IValue>* others) {
  torch::jit::Stack stack;
  size_t next = 0;
  for (const auto& value : values) stack.push_back(with_tensors(value, tensors, next));
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  Tensors made;
  for (const auto& value : stack) {
    if (value.isTensor()) {
      made.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const auto& x : value.toTensorVector()) made.push_back(x);
    }
  }
  if (others != nullptr) *others = std::move(stack);
  return made;
}

bool has_generator(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(),
                             [](const c10::Argument& argument) { return argument.name() == "generator"; });
}

/// An operator that returns numbers makes the host wait for them.
void wait_for_all(const std::string& name, const Tensors& tensors) {
  for (const auto& x : tensors) {
    if (x.defined() && !x.is_cpu()) wait_for(x, name);
  }
}

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::DispatchKey key) {
  check_devices(op, *stack);
  const auto count = op.schema().arguments().size();
  const std::vector<at::IValue> values(stack->end() - static_cast<int64_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  const auto name = op.schema().name();
  const auto arguments = arguments_of(op, values);
  // The work holds no tensor of the device: whose memory is free is for the program to say.
  std::vector<at::IValue> plain;
  const Tensors none(arguments.tensors.size());
  size_t next_none = 0;
  for (const auto& value : values) plain.push_back(with_tensors(value, none, next_none));
  const auto shapes = std::make_shared<std::vector<at::IValue>>();  // of the results, and what are no tensors
  const auto body = [op, plain, key, shapes](const Tensors& of) {
    return call_on_host(op, plain, of, key, shapes->empty() ? shapes.get() : nullptr);
  };
  const auto& returns = op.schema().returns();
  const bool gives_numbers = std::ranges::any_of(
      returns, [](const c10::Argument& one) { return one.type()->str().find("Tensor") == std::string::npos; });
  if (gives_numbers) wait_for_all(name, arguments.tensors);
  const auto made = give_work(name, arguments.tensors, arguments.written, has_generator(op), body);
  size_t next = 0;
  for (const auto& value : *shapes) stack->push_back(with_tensors(value, made, next));
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run(op, stack, c10::DispatchKey::CPU); }

}  // namespace

void install_test_device() {
  static std::once_flag once;
  std::call_once(once, [] {
    install_device_kernels();
    static Hooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::register_privateuse1_backend("blind");
    c10::SetAllocator(at::kPrivateUse1, blind_allocator());
    static const Guard guard;
    static const c10::impl::DeviceGuardImplRegistrar registrar(at::kPrivateUse1, &guard);
    static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    others.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
    static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    aten.impl("empty.memory_format", &empty);
    aten.impl("empty_strided", &empty_strided);
    aten.impl("record_stream", &record_stream);
    aten.impl("_copy_from", &copy_from);
    aten.impl("_copy_from_and_resize", &copy_from_and_resize);
    aten.impl("as_strided", &at::native::as_strided_tensorimpl);
    aten.impl("view", &at::native::view);
    aten.impl("unfold", &at::native::unfold);
    aten.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);  // reads nothing
    aten.impl("_reshape_alias", &at::native::_reshape_alias);
    aten.impl("native_batch_norm", &batch_norm);
    aten.impl("batch_norm_stats", &batch_norm_stats);
    // Else made of views, or of others in another layout.
    for (const auto* whole : {"convolution", "convolution_backward", "native_group_norm", "native_group_norm_backward",
                              "native_layer_norm", "native_layer_norm_backward", "silu_backward", "mish_backward"}) {
      aten.impl(whole, torch::CppFunction::makeFromBoxedFunction<&fall_back>());
    }
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
