#include "tandem/train/autocast.h"

#include <ATen/autocast_mode.h>

namespace tandem::train {

AutocastScope::AutocastScope(bool enabled) {
  if (!enabled) return;
  before_ = {at::autocast::is_autocast_enabled(at::kCPU), at::autocast::get_autocast_dtype(at::kCPU)};
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
}

AutocastScope::~AutocastScope() {
  if (!before_) return;
  at::autocast::set_autocast_enabled(at::kCPU, before_->enabled);
  at::autocast::set_autocast_dtype(at::kCPU, before_->type);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace tandem::train
