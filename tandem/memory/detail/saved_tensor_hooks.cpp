#include "tandem/memory/detail/saved_tensor_hooks.h"

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "tandem/base/autograd_engine.h"

namespace tandem::memory::detail {
namespace {

constinit thread_local HookSource* innermost_source = nullptr;
constinit thread_local bool is_exact = false;

std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() {
  return innermost_source != nullptr ? innermost_source->make_hooks() : nullptr;
}

void install_hooks() {
  static const bool is_done = [] {
    install_autograd_engine();
    set_saved_tensor_hooks(&make_hooks);
    return true;
  }();
  (void)is_done;
}

}  // namespace

HookScope::HookScope(HookSource* source) : before_(innermost_source) {
  install_hooks();
  innermost_source = source;
}

HookScope::~HookScope() { innermost_source = before_; }

HookSource* HookScope::innermost() { return innermost_source; }

ExactScope::ExactScope() : before_(is_exact) { is_exact = true; }

ExactScope::~ExactScope() { is_exact = before_; }

bool ExactScope::is_open() { return is_exact; }

}  // namespace tandem::memory::detail
