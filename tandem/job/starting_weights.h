#pragma once
#include "tandem/comm/process_group.h"
#include "tandem/job/job.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// Throws DataError if model.weights leads to nothing. Reads folders only.
void check_weights(const Job& job);

/// Fills the task's weights from model.weights, if it is given: each rank reads the parts that it holds. Must be called
/// before make_step(), whose strategy may keep copies. The head and the embedding may be missing there, and the head
/// may be of other classes: these start as drawn. Rank 0 tells what is read and what is not, a line each. Reading may
/// take longer than the group's timeout. Throws the first rank's Error on all ranks. Collective.
void start_from_weights(const Job& job, const train::Task& task, comm::ProcessGroup& group);

}  // namespace tandem::job
