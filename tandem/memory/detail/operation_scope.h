#pragma once
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

namespace c10 {
class OperatorHandle;
}

namespace tandem::memory::detail {

/// Sees the operations of a thread where autograd has done its part, before a kernel runs.
class OperationSink {
 public:
  OperationSink() = default;
  virtual ~OperationSink() = default;
  OperationSink(const OperationSink&) = delete;
  OperationSink& operator=(const OperationSink&) = delete;

  /// Replaces the arguments on the stack by the results: by call(), or by others. Operations that the kernel calls are
  /// not seen.
  virtual void run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) = 0;

  /// Runs the kernel.
  static void call(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack);
};

/// While the object lives, the calling thread's operations go to `sink`, or with nullptr to no sink. Scopes nest, only
/// the innermost counts.
class OperationScope {
 public:
  explicit OperationScope(OperationSink* sink);
  ~OperationScope();
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  OperationSink* before_;
  bool was_included_;
};

/// Ends a function from inside an operation that it calls. Unlike an exception from hooks on saved tensors it does not
/// meet libtorch where a custom function holds its own output, which would never be freed.
class OperationStop {
 public:
  struct Stopped {};  // thrown, when request() has been called, by the next operation of this thread that is seen

  OperationStop();
  ~OperationStop();
  OperationStop(const OperationStop&) = delete;
  OperationStop& operator=(const OperationStop&) = delete;

  void request();
  bool is_requested() const { return is_requested_; }

 private:
  const OperationScope restoring_;
  OperationStop* before_;
  bool is_requested_ = false;
};

}  // namespace tandem::memory::detail
