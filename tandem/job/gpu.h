#pragma once

namespace tandem::job {

/// Throws SettingsError if `device=cuda` cannot be had: by this build, or on this machine.
void check_gpu();

}  // namespace tandem::job
