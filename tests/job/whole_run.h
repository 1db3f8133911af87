#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/job/parts.h"
#include "tests/job/job_of.h"

namespace tandem::job {

/// What rank 0 has after a run.
struct WholeRun {
  std::vector<double> losses;  // of each step
  double top1 = 0, test_loss = 0;
  std::string hash, state;  // of the weights, and of all that a checkpoint holds
  train::Facts facts;
};

/// Called on each rank at the end of a run.
using Inspect = std::function<void(const train::Step&, const train::Task&, comm::ProcessGroup&)>;

/// Trains a job on Patterns to step `steps` of the 12 that the learning rate's schedule has. `store`: saves its last
/// step there, and goes on from what is there.
WholeRun whole_run(const Words& words, int64_t steps, const std::filesystem::path& store = {},
                   const Inspect& inspect = nullptr);

/// The scores of one rank of the job with the model of the newest checkpoint in `store`.
train::Scores scores_of(const Words& words, const std::filesystem::path& store);

}  // namespace tandem::job
