#pragma once
#include <optional>

#include "tandem/base/tensor.h"

namespace tandem::train {

/// While this object lives (and `enabled`), matrix products and convolutions of this thread compute in bfloat16 and all
/// other operations in float32, as torch.autocast does. Weights stay float32; their bfloat16 copies live until the
/// outermost scope ends. Scopes nest: the destructor restores the previous state.
class AutocastScope {
 public:
  explicit AutocastScope(bool enabled);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  struct Before {
    bool enabled;
    at::ScalarType type;
  };
  std::optional<Before> before_;  // nullopt: not enabled
};

}  // namespace tandem::train
