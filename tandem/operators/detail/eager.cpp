#include "tandem/operators/detail/eager.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

namespace tandem::operators::detail {
namespace {

using c10::DispatchKey;

constexpr c10::DispatchKeySet kOrdinary({DispatchKey::CPU, DispatchKey::AutogradCPU, DispatchKey::ADInplaceOrView,
                                         DispatchKey::AutocastCPU});

}  // namespace

bool runs_eagerly(std::initializer_list<Tensor> tensors) {
  return !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
         std::ranges::all_of(tensors, [](const Tensor& t) { return (t.key_set() | kOrdinary) == kOrdinary; });
}

void refuse_tangents(const char* name, std::initializer_list<Tensor> tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      std::ranges::none_of(tensors, [](const Tensor& t) { return torch::autograd::isFwGradDefined(t); }), name,
      ": has no derivative in forward mode");
}

}  // namespace tandem::operators::detail
