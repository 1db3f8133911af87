#pragma once
#include <functional>

#include "tandem/base/tensor.h"

namespace tandem::comm {

/// An operation that has been started. Its input must not be written before wait() has returned.
///
/// Every rank must wait for its handles in the order in which the operations were started. If wait() was not called,
/// the destructor waits and discards the result, so that the other ranks can finish; it does not wait during stack
/// unwinding. A handle may outlive its group, except a handle of recv_async(). Movable; not thread-safe.
class Handle {
 public:
  explicit Handle(std::function<Tensor()> finish) : finish_(std::move(finish)) {}
  ~Handle();
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;

  /// Waits for the operation and returns its result, which is part of the autograd graph. Throws c10::DistBackendError
  /// if the operation fails, and c10::Error if wait() was called before.
  Tensor wait();

 private:
  void drop() noexcept;

  std::function<Tensor()> finish_;
};

}  // namespace tandem::comm
