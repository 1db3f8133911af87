#pragma once
#include <functional>

#include "tandem/comm/process_group.h"
#include "tandem/job/job.h"

namespace tandem::job {

/// Runs `body` on every rank of the job: of this process, or as the one rank that a launcher made this process. Each
/// rank's memory goes into its own books. `stop_requested` is asked while processes wait for each other to come.
/// Throws SettingsError when the ranks of a launcher were given different settings.
void on_ranks(const Job& job, const std::function<void(comm::ProcessGroup&)>& body,
              std::function<bool()> stop_requested = {});

/// Whether this process prints for the job.
bool prints_for_the_job();

}  // namespace tandem::job
