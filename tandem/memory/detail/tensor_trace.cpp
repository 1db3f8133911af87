#include "tandem/memory/detail/tensor_trace.h"

#include <ATen/ATen.h>
#include <c10/util/Type.h>
#include <torch/csrc/autograd/function.h>

#include "tandem/memory/detail/value_digest.h"

namespace tandem::memory::detail {
namespace {

std::string shape_text(at::ScalarType type, at::IntArrayRef sizes, at::Device device) {
  auto text = c10::str(type, " ", sizes);
  return device.is_cpu() ? text : text + " on " + device.str();
}

}  // namespace

TensorTrace::TensorTrace(const Tensor& tensor, ValueCheck check)
    : counter_(tensor.unsafeGetTensorImpl()->version_counter()),
      version_(counter_.current_version()),
      type_(tensor.scalar_type()),
      device_(tensor.device()),
      sizes_(tensor.sizes().begin(), tensor.sizes().end()),
      tensor_(tensor.getIntrusivePtr()),
      digest_(digest_of(tensor, check)) {
  if (const auto& node = tensor.grad_fn()) maker_ = &typeid(*node);
}

bool TensorTrace::has_shape_of(const Tensor& other) const {
  return other.sizes() == at::IntArrayRef(sizes_) && other.scalar_type() == type_ && other.device() == device_;
}

bool TensorTrace::has_values_of(const Tensor& other, ValueCheck check) const {
  // Running statistics are saved before a batch moves them, without a new version.
  return tensor_._unsafe_get_target() == other.unsafeGetTensorImpl() || digest_of(other, check) == digest_;
}

std::string TensorTrace::text() const {
  auto text = shape_text(type_, sizes_, device_);
  if (maker_ == nullptr) return text;
  const auto name = c10::demangle(maker_->name());
  return text + " of " + name.substr(name.rfind("::") == std::string::npos ? 0 : name.rfind("::") + 2);
}

std::string TensorTrace::versions() const {
  return c10::str("version ", counter_.current_version(), ", wanted ", version_);
}

Tensor alias_of(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  const auto* impl = tensor.unsafeGetTensorImpl();
  return Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
}

std::string shape_text(const Tensor& tensor) {
  return shape_text(tensor.scalar_type(), tensor.sizes(), tensor.device());
}

}  // namespace tandem::memory::detail
