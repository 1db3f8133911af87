#pragma once
#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace tandem {

/// Replaces libtorch's engine of autograd for the rest of the process. The new one passes all work on to it, but for
/// threads in an EngineScope. Later calls have no effect. Backward that runs meanwhile, in any thread, is not affected.
void install_autograd_engine();

/// While the object lives, backward that the calling thread begins runs on an engine of its own, hence on a thread of
/// its own for each device; so does what those threads begin. It is for a thread-rank on a GPU: libtorch's engine has
/// one thread for each device, on which a rank that waits in backward for other ranks would keep them from coming.
///
///   rank 0 ── backward ──▶ its thread of the device ── all_reduce: waits for rank 1 ─┐
///   rank 1 ── backward ──▶ its thread of the device ── all_reduce ──────────────────┴─ both go on
///
/// Installs the engine. Engines, and their threads, are used again by later scopes, and never end.
class EngineScope {
 public:
  EngineScope();
  ~EngineScope();
  EngineScope(const EngineScope&) = delete;
  EngineScope& operator=(const EngineScope&) = delete;

 private:
  void* own_;
  void* before_;
};

/// Gives the hooks for a tensor that an operation of the calling thread saves for backward; null: it has none.
using MakeSavedTensorHooks = std::unique_ptr<torch::autograd::SavedVariableHooks> (*)();

/// For saved tensors, the engine that is installed asks `make` from now on.
void set_saved_tensor_hooks(MakeSavedTensorHooks make);

}  // namespace tandem
