#pragma once
#include "tandem/base/tensor.h"

namespace tandem::train {

/// While it lives (and `enabled`), matrix products and convolutions of this thread compute in bfloat16 and the rest
/// stays in float32, as torch.autocast does. Weights stay float32; their bfloat16 copies live until the scope ends.
class AutocastScope {
 public:
  explicit AutocastScope(bool enabled);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool enabled_;
};

}  // namespace tandem::train
