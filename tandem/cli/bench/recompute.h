#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// A training step that recomputes, beside torch.utils.checkpoint.checkpoint_sequential on the same model.
struct RecomputeBench {
  std::string model = "resnet50";
  int64_t batch = 32, size = 224, classes = 1000;
  int threads = 1;
  std::vector<int64_t> segments;  // of the peer, besides a step without recomputation
  int64_t budgets = 6;            // of ours, from the least to what nothing recomputed takes
  int64_t rounds = 5;
  bool with_peers = true;
};

/// One way to do the step, of Tandem or of the peer.
struct RecomputeWay {
  int64_t segments = 0;           // the peer's; 0: nothing is recomputed
  std::optional<int64_t> budget;  // ours; nullopt: nothing is recomputed
  std::string plan;               // ours
  double predicted_slowdown = 1;  // of ours
  int64_t bytes = 0;              // of activations, at the highest moment of the step
  std::vector<double> seconds;    // of each round: forward, backward and update
};

struct RecomputeResult {
  std::vector<RecomputeWay> peer, own;  // the first of each recomputes nothing; without a peer, `peer` is empty
  bool is_peer_missing = false;         // it did not start, or did not stay
  double rehearsal_seconds = 0;         // for the blocks' bytes and work
  double planning_seconds = 0;          // the longest search for a plan among these budgets
};

/// A way of the peer, and ours in its bytes or in its time.
struct RecomputeCase {
  std::string name;
  const RecomputeWay* peer = nullptr;
  const RecomputeWay* own = nullptr;
  double speedup() const;      // median over the rounds of the peer's time divided by ours
  double bytes_ratio() const;  // ours divided by the peer's
};

/// The median over the rounds of the first way's time divided by the second's.
double median_ratio(const RecomputeWay& first, const RecomputeWay& second);

/// Measures all ways in turn, round by round.
RecomputeResult bench_recompute(const RecomputeBench& bench);

/// For each way of the peer: ours with its bytes as the budget ("at its bytes"), and that of ours with fewest bytes
/// which is not slower ("at its time"). A case for which we have no such way is left out. Without a peer there are no
/// cases. `result` must outlive them.
std::vector<RecomputeCase> cases_of(const RecomputeResult& result);

/// `tandem bench recompute`: reads its settings, prints and writes the result.
int run_recompute(const Arguments& arguments);
settings::Schema recompute_schema();

}  // namespace tandem::cli
