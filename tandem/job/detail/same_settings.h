#pragma once
#include <string>

#include "tandem/comm/process_group.h"
#include "tandem/settings/settings.h"

namespace tandem::job::detail {

/// Ranks that were started one by one can be given different settings. Throws SettingsError on all ranks when some
/// rank's setting is not rank 0's; `threads` and `out` may differ. Collective.
void check_same_settings(const settings::Settings& settings, comm::ProcessGroup& group);

/// "train.lr is '0.5' on rank 3, wanted '0.3' as rank 0 has": of the first setting that differs; "" when none does.
std::string difference_to_leader(const settings::Settings& own, int rank, const settings::Settings& leader);

}  // namespace tandem::job::detail
