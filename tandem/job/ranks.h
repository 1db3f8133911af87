#pragma once
#include <functional>
#include <optional>

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

/// The bytes that a rank may hold; nullopt: it has no limit.
std::optional<int64_t> limit_of(const Job& job, int rank);

/// What the ranks of this process that compute on the rank's GPU may hold there together; nullopt: there is no limit,
/// or the rank computes on the CPU.
std::optional<int64_t> limit_of_gpu(const Job& job, int rank);

/// Returns true if this process prints for the job.
bool prints_for_the_job();

}  // namespace tandem::job
