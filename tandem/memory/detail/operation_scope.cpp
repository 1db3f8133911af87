#include "tandem/memory/detail/operation_scope.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace tandem::memory::detail {
namespace {

// Below autograd and above the kernels; libtorch itself does not use this key.
constexpr auto kKey = c10::DispatchKey::Fake;

constinit thread_local OperationSink* innermost = nullptr;
constinit thread_local OperationStop* innermost_stop = nullptr;

void to_sink(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (innermost_stop != nullptr && innermost_stop->is_requested()) throw OperationStop::Stopped();
  auto* sink = innermost;
  const OperationScope none(nullptr);
  // libtorch carries the key, but not the sink, into threads that work for this one.
  return sink != nullptr ? sink->run(operation, keys, stack) : OperationSink::call(operation, keys, stack);
}

/// Never destroyed: threads may run operations until the process ends.
torch::Library* library = nullptr;

void install_fallback() {
  static const bool is_done = [] {
    library = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&to_sink>());
    return true;
  }();
  (void)is_done;
}

}  // namespace

void OperationSink::call(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  operation.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

OperationScope::OperationScope(OperationSink* sink)
    : before_(innermost), was_included_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  if (sink != nullptr) install_fallback();
  innermost = sink;
  c10::impl::tls_set_dispatch_key_included(kKey, sink != nullptr);
}

OperationScope::~OperationScope() {
  innermost = before_;
  c10::impl::tls_set_dispatch_key_included(kKey, was_included_);
}

OperationStop::OperationStop() : restoring_(innermost), before_(innermost_stop) { innermost_stop = this; }

OperationStop::~OperationStop() { innermost_stop = before_; }

void OperationStop::request() {
  install_fallback();
  is_requested_ = true;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

}  // namespace tandem::memory::detail
