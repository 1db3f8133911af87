#pragma once
#include <memory>

#include "tandem/cli/bench/peer_process.h"
#include "tandem/cli/bench/recompute.h"
#include "tandem/cli/bench/timed_step.h"
#include "tandem/job/parts.h"

namespace tandem::cli {

/// The training job of the benchmark, with more settings.
job::Job recompute_job(const RecomputeBench& bench, const std::vector<std::string>& words);

/// Tandem's step with one plan: a task of its own, on the same images as the others.
class OwnStep {
 public:
  /// Takes two steps, of which the second is measured in bytes. Throws SettingsError if the budget is too small.
  OwnStep(const RecomputeBench& bench, std::optional<int64_t> budget, comm::ProcessGroup& group);

  RecomputeWay& way() { return way_; }

  /// Takes a step, and adds its time to the way.
  void time();

 private:
  int64_t measured_bytes();

  RecomputeWay way_;
  job::Job job_;
  std::unique_ptr<TimedStep> step_;
  int rank_;
};

/// bench/recompute/peers.py.
class RecomputePeer {
 public:
  explicit RecomputePeer(const RecomputeBench& bench);

  /// Takes two steps, of which the first is measured in bytes.
  RecomputeWay way(int64_t segments);

  /// Takes a step, and adds its time to the way.
  void time(RecomputeWay& way);

 private:
  double ask(const std::string& question, int64_t segments);

  std::unique_ptr<PeerProcess> process_;
};

}  // namespace tandem::cli
