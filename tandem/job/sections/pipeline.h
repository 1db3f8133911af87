#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/pipeline/schedule.h"

namespace tandem::job {

struct Job;

/// The value of pipeline.schedule that leaves it to a search (auto_plan.h).
inline constexpr std::string_view kFittingSchedule = "fit";

/// How the ranks along the axis pipeline share the work of a step.
struct Pipeline {
  const pipeline::Schedule* schedule = nullptr;  // null: the program of a file
  std::string file, text;                        // its name, and what is in it
  bool is_searched = false;                      // the schedule is only what stands for it until one is found
  int chunks = 2;                                // stages of each rank, where the schedule leaves the choice
  int held = 0;                                  // graphs of stages that a rank may hold at once, likewise
  std::vector<std::string> cut;                  // the first blocks of the stages but the first; empty: by work
  bool measures_cut = false;                     // by time, until settle_cut() has set it
  std::array<double, 3> costs = {1, 1, 1};       // of a plan: forward, input gradients, weight gradients of a rank
  double head_cost = 0;                          // of a plan: each of the classifier's four products, on one rank
};

/// Whether the classes of the job are divided over the ranks along the pipeline, too: Head::over.
bool divides_head(const Job& job);

/// The program of the job's pipeline for so many micro-batches; without one, of one rank. Throws SettingsError.
pipeline::Program program_of(const Job& job, int micro_batches);

/// The ranks of the stages, by their coordinates along the axis pipeline; without a pipeline one stage at 0.
std::vector<int> stage_ranks(const Job& job);

}  // namespace tandem::job
