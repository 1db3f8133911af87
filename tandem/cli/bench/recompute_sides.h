#pragma once
#include <memory>
#include <optional>

#include "tandem/cli/bench/peer.h"
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

/// bench/recompute/peers.py. Missing if the benchmark wants no peer, or if it does not start or stay.
class RecomputePeer {
 public:
  explicit RecomputePeer(const RecomputeBench& bench);

  bool is_missing() const { return !peer_ || peer_->is_missing(); }

  /// Takes two steps, of which the first is measured in bytes. Returns nullopt if the peer is missing.
  std::optional<RecomputeWay> way(int64_t segments);

  /// Takes a step, and adds its time to the way.
  void time(RecomputeWay& way);

 private:
  std::optional<double> ask(const std::string& question, int64_t segments);

  std::optional<Peer> peer_;
};

}  // namespace tandem::cli
