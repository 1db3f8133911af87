#pragma once
#include <functional>

#include "tandem/base/tensor.h"

namespace tandem::comm {

/// An operation that has begun. Nobody may write its input before wait() has returned.
///
/// Every handle must be waited for, and the ranks must wait for theirs in the order in which they began; a handle that
/// is destroyed without wait() leaves the operation to end by itself. Movable; one thread uses it.
class Handle {
 public:
  explicit Handle(std::function<Tensor()> finish) : finish_(std::move(finish)) {}

  /// Waits and gives the result, with its place in the graph. Throws c10::DistBackendError as the operation would.
  /// A second call is an error (c10::Error).
  Tensor wait();

 private:
  std::function<Tensor()> finish_;
};

}  // namespace tandem::comm
