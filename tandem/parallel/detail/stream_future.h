#pragma once
#include <ATen/core/ivalue.h>

#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::parallel::detail {

/// A future of work on `tensor`: who waits for it makes their stream wait for the one on which it was completed. It
/// must be completed with storages_of(tensor).
inline c10::intrusive_ptr<c10::ivalue::Future> future_of(c10::TypePtr type, const Tensor& tensor) {
  std::vector<c10::Device> devices;
  if (!tensor.is_cpu()) devices.push_back(tensor.device());
  return c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::move(devices));
}

inline std::vector<c10::ivalue::Future::WeakStorage> storages_of(const Tensor& tensor) {
  if (tensor.is_cpu()) return {};
  return {c10::ivalue::Future::WeakStorage(tensor.storage().getWeakStorageImpl())};
}

/// A device that has failed is an error of the future.
inline void complete(c10::ivalue::Future& future, c10::IValue value,
                     const std::vector<c10::ivalue::Future::WeakStorage>& storages) {
  try {
    future.markCompleted(std::move(value), storages);
  } catch (...) {
    future.setErrorIfNeeded(std::current_exception());
  }
}

}  // namespace tandem::parallel::detail
