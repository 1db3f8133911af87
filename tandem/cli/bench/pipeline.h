#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Training steps of a vision transformer over the stages of a pipeline, on ranks of one thread each, beside the same
/// by torch.distributed.pipelining over Gloo, and beside the simulation on what the stages take when nothing is sent.
/// The mode delays runs every schedule with stages that sleep: how true the simulation is, whatever the machine.
struct PipelineBench {
  std::vector<std::string> modes;      // threads, processes, delays
  std::vector<std::string> schedules;  // of threads and processes
  bool with_peers = true;
  int ranks = 2, micro_batches = 8;
  int64_t batch = 64, size = 64, patch = 8, heads = 4, classes = 100;
  int64_t rounds = 5, steps = 3;  // steps of each side in a round
  int delayed_ranks = 4;
  double unit = 0.02;                 // seconds of forward, and of each half of backward, of a rank
  std::vector<std::string> settings;  // more of ours
};

struct PipelineCase {
  std::string schedule, mode;
  int ranks = 0, micro_batches = 0;
  double seconds = 0;            // of a step: the median over the rounds of a round's median
  double simulated_seconds = 0;  // on measured costs, with the update
  double bubble = 0;             // simulated
  std::optional<double> peer_seconds, peer_simulated_seconds;  // nullopt: there is none, or it is missing
  std::optional<double> speedup;  // median over the rounds of the peer's time divided by ours
  /// What a step takes beyond its simulation, ours divided by the peer's: medians over the rounds. Not told where ours
  /// takes nothing beyond.
  std::optional<double> beyond;
  int64_t peak_bytes = 0, wire_bytes = 0;  // of the rank that has most; of all ranks, a step
};

struct PipelineResult {
  std::vector<PipelineCase> cases;
  bool is_peer_missing = false;
};

/// The sides take their steps in turn, round by round. Throws IoError if a side of ours does not start.
PipelineResult bench_pipeline(const PipelineBench& bench);

/// `tandem bench pipeline`: reads its settings, prints and writes the result.
int run_pipeline(const Arguments& arguments);
settings::Schema pipeline_schema();

}  // namespace tandem::cli
