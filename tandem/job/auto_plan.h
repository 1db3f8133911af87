#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/job/detail/plan_estimate.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/mesh.h"

namespace tandem::job {

/// The axes with several ranks: "data 2 x pipeline 4"; "1 rank".
std::string mesh_text(const parallel::MeshSizes& sizes);

/// A way to share a job's work among its ranks.
struct SharedPlan {
  std::vector<std::string> words;  // settings that make it, beside the job's
  std::string mesh, schedule;      // "data 2 x pipeline 4"; "": no pipeline
  std::string strategy, recompute;
  int64_t micro_batches = 1;
  bool divides_head = false;
  double seconds = 0;                       // of a step, as PlanEstimate has it
  std::vector<pipeline::StageCost> stages;  // of which this is made,
  double after_seconds = 0;                 // and this, after backward
  int64_t peak_bytes = 0;                   // of the rank with the most
  bool is_rehearsed = false;                // peak_bytes are those of a rehearsal, to the byte; else about
  int worst = 0;                            // the coordinate along pipeline of that rank
  std::string worst_block;

  std::string text() const;  // in one line
};

struct SharedPlans {
  std::vector<SharedPlan> front;         // each is faster than all with as few bytes; the fastest first
  std::vector<SharedPlan> fitting;       // the fastest within the limit; the first is the chosen one
  double lower_bound = 0;                // seconds: no plan of so many ranks takes less
  int64_t estimated = 0, rehearsed = 0;  // plans
};

struct SearchOptions {
  std::optional<int64_t> limit = {};  // bytes of a rank
  int wanted = 1;                     // plans that fit
  bool wants_front = true;            // false: only of those that are rehearsed to find these; all if none fits
};

/// Looks at all plans of the job. With parallel=auto: sizes of the mesh, strategies, schedules, micro-batches,
/// recomputation, and where the classes are; settings that were given stay. Micro-batches are powers of two,
/// recomputation none, sqrt or all, and what is divided is so among all ranks that share a batch, unless given. With
/// pipeline.schedule=fit: schedules, v-held with all that it may hold among them. Estimates the time of each plan, and
/// rehearses, from the fastest on, those that may fit the limit, until as many as are wanted do, and the front.
/// `fitting` is empty if none does, of those that were rehearsed. Not collective. Time: seconds to a minute. Throws
/// SettingsError if the job can have no plan.
SharedPlans search_plans(const Job& job, PlanEstimate& estimates, const SearchOptions& options);

/// What all plans of the job take, as the ranks of `group` measure it, all at the same time; links are known to rank 0
/// alone. Collective.
PlanEstimate measure_plans(const Job& job, const DataShape& shape, comm::ProcessGroup& group);

/// The job with one of its plans; memory.limit becomes Memory::guard. Throws SettingsError if it cannot have it.
Job with_plan(const Job& job, const std::vector<std::string>& words);

/// A job that needs a search becomes the plan that is chosen for it, by rank 0 for all, by what it measures there and
/// between the ranks; returns it, with its times and bytes on rank 0 alone. nullopt: the job has a plan. Throws
/// SettingsError: no plan fits memory.limit; a GPU, whose times nobody measures yet; a search. Collective.
std::optional<SharedPlan> settle_plan(Job& job, const DataShape& shape, comm::ProcessGroup& group);

/// memory.limit of a job that needs a search: one number for all ranks. Throws SettingsError for several.
std::optional<int64_t> limit_of(const Job& job);

/// Of a search without a plan: which stage needs how many bytes.
[[noreturn]] void refuse_limit(const Job& job, const SharedPlans& plans, int64_t limit);

}  // namespace tandem::job
