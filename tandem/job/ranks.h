#pragma once
#include <functional>

#include "tandem/comm/process_group.h"
#include "tandem/job/job.h"

namespace tandem::job {

/// Runs `body` on every rank of the job: on threads of this process or, under a launcher, on the one rank that this
/// process is. The memory of each rank is counted separately. `stop_requested` is polled while processes wait for each
/// other. Throws SettingsError if the ranks of a launcher were given different settings.
void on_ranks(const Job& job, const std::function<void(comm::ProcessGroup&)>& body,
              std::function<bool()> stop_requested = {});

/// Compute threads of a rank.
int threads_of(const Parallel& parallel);

/// Returns true if this process prints for the job.
bool prints_for_the_job();

}  // namespace tandem::job
