#pragma once
#include <vector>

#include "tandem/job/job.h"
#include "tandem/job/rank_facts.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// What the ranks need in one form of the head.
struct FormMemory {
  HeadForm form;
  std::vector<RankFacts> ranks;
  std::vector<int64_t> predicted;  // peak of each rank by MemoryPlan; only rank 0 knows it
};

/// Trains two steps of the job in each form on fresh models and measures the peaks; nothing of it stays. A form whose
/// scores would not fit easily is left out, and so is all of it when the epoch is too short. Collective.
std::vector<FormMemory> compare_forms(const Job& job, const data::Dataset& dataset, comm::ProcessGroup& group);

/// Weight, gradient and optimizer state of the class weight on this rank.
int64_t head_bytes(const train::Task& task, const train::Optimizer& optimizer);

}  // namespace tandem::job
