#pragma once
#include <functional>

#include "tandem/base/tensor.h"

namespace tandem::comm {

/// An operation that has begun. Nobody may write its input before wait() has returned.
///
/// The ranks must wait for their handles in the order in which they began. A handle that is destroyed without wait()
/// waits then, and drops what comes, so that the other ranks get theirs; not while an exception is on its way. May
/// outlive its group. Movable; one thread uses it.
class Handle {
 public:
  explicit Handle(std::function<Tensor()> finish) : finish_(std::move(finish)) {}
  ~Handle();
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;

  /// Waits and gives the result, with its place in the graph. Throws c10::DistBackendError as the operation would.
  /// A second call is an error (c10::Error).
  Tensor wait();

 private:
  void drop() noexcept;

  std::function<Tensor()> finish_;
};

}  // namespace tandem::comm
