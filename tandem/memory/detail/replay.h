#pragma once
#include <exception>

#include "tandem/memory/detail/recompute_frame.h"
#include "tandem/memory/detail/saved_tensor_hooks.h"

namespace tandem::memory::detail {

/// The context of a second call of forward, for that of the first.
Context holding(Context context);

/// One more call of a frame's forward, for the tensors that it saves.
class Replay : public HookSource {
 public:
  /// `values`: receives those that are needed and that it lacks.
  Replay(Frame& frame, Frame::Values& values);

  void run();

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override;

  /// `value`: the saved tensor, detached.
  void add(const Tensor& saved, const Tensor& value);

 private:
  void check(int64_t slot, const Tensor& saved);
  void check_count() const;

  Frame& frame_;
  Frame::Values& values_;
  int64_t last_ = -1;  // the last slot that is wanted
  int64_t saved_ = 0;  // slots so far
  bool has_stopped_ = false;
  OperationStop* stop_ = nullptr;
  std::exception_ptr failure_;  // thrown once more at the end: forward might have caught it
};

}  // namespace tandem::memory::detail
