#pragma once
#include <vector>

#include "tandem/job/job.h"
#include "tandem/job/rank_facts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// The measured memory of all ranks with one form of the head.
struct FormMemory {
  const HeadForm* form;
  std::vector<RankFacts> ranks;
};

/// Trains two steps of the job with its own form of the head and with each that splits the classes, on new models, and
/// measures the peaks; the models are discarded. Another form than the job's own is measured without memory.limit, and
/// skipped if it would not easily fit in memory. `plan`: of the job itself. Collective.
std::vector<FormMemory> compare_forms(const Job& job, const RankPlan& plan, const data::Dataset& dataset,
                                      comm::ProcessGroup& group);

/// Bytes of the class weight, its gradient and its optimizer state on this rank.
int64_t head_bytes(const train::Task& task, const train::Step& step);

}  // namespace tandem::job
