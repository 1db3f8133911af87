#pragma once
#include <string>
#include <vector>

#include "tandem/job/job.h"
#include "tandem/job/rank_memory.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// The bytes of each rank at the peak of a training step with one form of the head, predicted.
struct FormMemory {
  std::string name;
  std::vector<CategoryBytes> ranks;
};

/// The forms that the head of the job may have, with and without its options; see docs/memory.md. Each is told by what
/// its head needs beside that of the job (LargeRanks), whose ranks are `ranks`, with so many classes each. A form is
/// left out with which the job could not train.
std::vector<FormMemory> compare_forms(const Job& job, const std::vector<PlannedRank>& ranks,
                                      const std::vector<int64_t>& counts, LargeRanks& large);

/// Predicts the memory of the job with each other form of the head that splits the classes, and with a pipeline also
/// with the classes over its last stage, or over all, whichever the job has not; without memory.limit and
/// recomputation. A form is left out with which the job could not train, or that would not easily fit in memory.
/// `batches`: of a training epoch. Collective.
std::vector<FormMemory> predict_other_forms(const Job& job, const DataShape& shape, int64_t batches,
                                            comm::ProcessGroup& group);

/// Bytes of the class weight, its gradient and its optimizer state on this rank.
int64_t head_bytes(const train::Task& task, const train::Step& step);

}  // namespace tandem::job
