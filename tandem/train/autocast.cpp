#include "tandem/train/autocast.h"

#include <ATen/autocast_mode.h>

namespace tandem::train {

AutocastScope::AutocastScope(bool enabled) : enabled_(enabled) {
  if (!enabled_) return;
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
}

AutocastScope::~AutocastScope() {
  if (!enabled_) return;
  at::autocast::set_autocast_enabled(at::kCPU, false);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace tandem::train
