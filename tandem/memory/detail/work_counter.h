#pragma once
#include "tandem/memory/detail/operation_scope.h"

namespace tandem::memory::detail {

/// Counts the floating-point operations of the matrix products and convolutions that run in its scope, from the shapes
/// of their tensors: the same on each machine and in each run.
class WorkCounter : public OperationSink {
 public:
  void run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;

  double operations() const { return operations_; }

 private:
  double operations_ = 0;
};

/// Seconds of a nominal core for so many floating-point operations and bytes of results. Sets the price of a
/// recomputation; only the ratio of the two matters.
double nominal_seconds(double operations, double bytes);

}  // namespace tandem::memory::detail
