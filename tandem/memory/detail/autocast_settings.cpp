#include "tandem/memory/detail/autocast_settings.h"

#include <ATen/autocast_mode.h>

namespace tandem::memory::detail {
namespace {

constexpr std::array kDevices = {at::kCPU, at::kCUDA};

}  // namespace

AutocastSettings AutocastSettings::now() {
  AutocastSettings settings{};
  for (size_t i = 0; i < kDevices.size(); ++i) {
    settings.is_enabled[i] = at::autocast::is_autocast_enabled(kDevices[i]);
    settings.type[i] = at::autocast::get_autocast_dtype(kDevices[i]);
  }
  settings.is_cached = at::autocast::is_autocast_cache_enabled();
  return settings;
}

void AutocastSettings::apply() const {
  for (size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], is_enabled[i]);
    at::autocast::set_autocast_dtype(kDevices[i], type[i]);
  }
  at::autocast::set_autocast_cache_enabled(is_cached);
}

AutocastScope::AutocastScope(AutocastSettings settings) : before_(AutocastSettings::now()) {
  settings.is_cached = false;
  settings.apply();
}

AutocastScope::~AutocastScope() { before_.apply(); }

}  // namespace tandem::memory::detail
