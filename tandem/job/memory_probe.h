#pragma once
#include <vector>

#include "tandem/job/job.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// The bytes of each rank at the peak of a training step with one form of the head, predicted.
struct FormMemory {
  const HeadForm* form;
  std::vector<CategoryBytes> ranks;
};

/// Predicts the memory of the job with each other form of the head that splits the classes, without memory.limit and
/// recomputation. A form is left out with which the job could not train, or that would not easily fit in memory.
/// `batches`: of a training epoch. Collective.
std::vector<FormMemory> predict_other_forms(const Job& job, const DataShape& shape, int64_t batches,
                                            comm::ProcessGroup& group);

/// Bytes of the class weight, its gradient and its optimizer state on this rank.
int64_t head_bytes(const train::Task& task, const train::Step& step);

}  // namespace tandem::job
