#pragma once
#include "tandem/base/error.h"
#include "tandem/cli/command.h"
#include "tandem/comm/process_group.h"
#include "tandem/job/job.h"

namespace tandem::cli {

/// Trains on one rank. Rank 0 also prints the results and writes them to the run's folder. Returns how the run ended.
/// Collective.
ExitCode run_training(const Arguments& arguments, const job::Job& job, const data::Split& data,
                      comm::ProcessGroup& group);

}  // namespace tandem::cli
