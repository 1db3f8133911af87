#pragma once
#include <string>

#include "tandem/comm/process_group.h"
#include "tandem/settings/settings.h"

namespace tandem::job::detail {

/// Checks that all ranks have the same settings: ranks that were started one by one may have different ones. Throws
/// SettingsError on all ranks if a setting of some rank differs from rank 0's; `out` and, without train.shards,
/// `threads` may differ. Collective.
void check_same_settings(const settings::Settings& settings, comm::ProcessGroup& group);

/// Describes the first setting that differs, such as "train.lr is '0.5' on rank 3, wanted '0.3' as rank 0 has"; "" if
/// none differs.
std::string difference_to_leader(const settings::Settings& own, int rank, const settings::Settings& leader);

}  // namespace tandem::job::detail
