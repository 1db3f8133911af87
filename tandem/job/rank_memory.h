#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/job/class_split.h"
#include "tandem/job/job.h"
#include "tandem/job/large_ranks.h"
#include "tandem/job/parts.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/rehearsal.h"

namespace tandem::job {

/// How much data there is.
struct DataAmount {
  int64_t batches = 0;      // of a training epoch
  int64_t test_images = 0;  // 0: there is no test
};

struct RankMemory {
  memory::Composition step;  // of training; live: what is held between two steps
  int64_t test = 0;          // bytes at the peak of a test; 0: there is none

  RankPeak peak() const;
};

/// What one rank needs, before any step has run. The rank's parts are made as training makes them, for a rehearsal
/// group, and each block of the step runs alone, on synthetic images of the real batch (memory/rehearsal.h). The peak
/// of a step is equal to what training measures with threads=1 and thread-ranks if all targets of a batch are classes
/// of this rank; otherwise up to 1 KB more. Process-ranks hold messages in flight besides. With sampled classes it is
/// that of the largest draw. A test's batch runs as a whole.
///
/// `plan`: the sum of its counts replaces the classes of `shape`. Memory: the rank's parameters and optimizer state,
/// and one block's activations. Throws SettingsError if the model cannot train on as few images as train.batch gives
/// it, or if memory.budget does not hold. Not collective. `step`: if it is known, only the test is rehearsed.
RankMemory rehearse_rank(const Job& job, const DataShape& shape, int rank, const TaskPlan& plan,
                         const DataAmount& amount, const std::optional<memory::Composition>& step = {});

/// The blocks of a rank's step, or their parts, for a plan of what to recompute: of each stage of a pipeline that it
/// holds.
std::vector<std::vector<memory::Stage>> rehearse_stages(const Job& job, const DataShape& shape,
                                                        const std::vector<int64_t>& counts, bool in_parts,
                                                        int rank = 0);

struct PlannedRank {
  memory::Account step;       // of training; live: 0 if approximate
  RankPeak peak;              // of training and tests
  int64_t test = 0;           // bytes at the peak of a test; 0: there is none, or it is not known
  bool is_rehearsed = false;  // or else approximate
  memory::Levels levels;      // of training
};

/// Peaks of all ranks of a job that runs elsewhere, one rank after the other. Equal ranks are rehearsed once. A rank
/// that is too large for this machine, in bytes or in work, has the approximate bytes of LargeRanks.
class PlannedRanks {
 public:
  PlannedRanks(const Job& job, const DataShape& shape, LargeRanks& large);

  PeaksOf peaks();
  std::vector<PlannedRank> ranks(const std::vector<int64_t>& counts);
  const PlannedRank& rank(int rank, const std::vector<int64_t>& counts);

  /// Of rank 0.
  const Recomputation& recomputation() { return recomputation(0); }

  /// False if a rank was too large with some of the counts so far.
  bool are_rehearsed() const { return are_rehearsed_; }

  /// True if bytes differ from step to step, as those of sampled classes: of rehearsed ranks they are bounds.
  bool are_drawn() const { return job_.head.options.sampling.has_value(); }

 private:
  const Recomputation& recomputation(int rank);
  bool is_small(int rank, int64_t own_classes);

  const Job& job_;
  const DataShape& shape_;
  LargeRanks& large_;
  const std::vector<int64_t> even_;                      // classes of each rank
  std::map<int, Recomputation> recomputations_;          // by the coordinate along the axis pipeline
  std::map<std::array<int64_t, 4>, PlannedRank> known_;  // by classes, all of them, images, and what else differs
  bool are_rehearsed_ = true;
};

/// How the task is divided, and the memory of the calling rank.
struct RankPlan {
  TaskPlan task;
  RankMemory own;
  double slowdown = 1;  // predicted, by what is recomputed
};

/// The classes as fit_counts() if there is a limit, or else evenly; what is recomputed as choose_recomputation().
/// Throws as these, on all ranks. Collective.
RankPlan plan_rank(const Job& job, const DataShape& shape, const DataAmount& amount, comm::ProcessGroup& group);

}  // namespace tandem::job
