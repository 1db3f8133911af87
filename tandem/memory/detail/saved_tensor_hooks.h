#pragma once
#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace tandem::memory::detail {

/// Gives the hooks for a tensor that an operation saves for backward.
class HookSource {
 public:
  HookSource() = default;
  virtual ~HookSource() = default;
  HookSource(const HookSource&) = delete;
  HookSource& operator=(const HookSource&) = delete;

  /// Called once for each tensor, before the hooks' call_pack_hook(), which libtorch leaves out for a number that it
  /// has wrapped in a tensor.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() = 0;
};

/// While the object lives, operations of the calling thread save their tensors through hooks of `source`. Scopes nest,
/// only the innermost counts. The first scope of the process installs base/autograd_engine.h. Without a scope, a saved
/// tensor costs what it did before, and about a nanosecond.
class HookScope {
 public:
  explicit HookScope(HookSource& source) : HookScope(&source) {}
  explicit HookScope(HookSource* source);  // null: as if there were no scope
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

  /// The source of the calling thread's innermost scope, or null.
  static HookSource* innermost();

 private:
  HookSource* before_;
};

/// While the object lives, what the calling thread saves must come back with the same bits: for hooks that would keep
/// it approximately.
class ExactScope {
 public:
  ExactScope();
  ~ExactScope();
  ExactScope(const ExactScope&) = delete;
  ExactScope& operator=(const ExactScope&) = delete;

  static bool is_open();

 private:
  bool before_;
};

}  // namespace tandem::memory::detail
