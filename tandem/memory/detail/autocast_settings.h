#pragma once
#include <c10/core/ScalarType.h>

#include <array>

namespace tandem::memory::detail {

/// The calling thread's settings of autocast, for the CPU and for CUDA.
struct AutocastSettings {
  static AutocastSettings now();
  void apply() const;

  std::array<bool, 2> is_enabled;
  std::array<c10::ScalarType, 2> type;
  bool is_cached;
};

/// Other settings while the object lives. Casts of parameters are not cached: the cache would hold them beyond its end.
class AutocastScope {
 public:
  explicit AutocastScope(AutocastSettings settings);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastSettings before_;
};

}  // namespace tandem::memory::detail
