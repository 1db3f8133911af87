#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Training steps of a vision transformer whose layers are divided over ranks of one thread each, beside the same by
/// torch's DTensor over Gloo, and beside both with nothing sent.
struct TensorBench {
  std::vector<std::string> modes;  // threads, processes
  std::vector<int64_t> batches = {16, 64};
  bool with_peers = true;
  int ranks = 2;
  int64_t size = 64, patch = 8, heads = 4;  // heads are divided evenly by the ranks, as the peer needs
  int64_t classes = 100;
  int64_t rounds = 5, steps = 5;      // steps of each side in a round
  std::vector<std::string> settings;  // more of ours
};

struct TensorCase {
  std::string mode;
  int64_t batch = 0;
  double seconds = 0;          // of a step: the median over the rounds of a round's median
  double compute_seconds = 0;  // the same with nothing sent
  std::optional<double> peer_seconds, peer_compute_seconds;  // nullopt: the peer is missing
  std::optional<double> speedup;  // median over the rounds of the peer's time divided by ours
  std::optional<double> beyond;   // of what each takes beyond its computing, ours divided by the peer's, likewise
  int64_t peak_bytes = 0, wire_bytes = 0;  // of the rank that has most; of all ranks, a step
};

struct TensorResult {
  std::vector<TensorCase> cases;
  bool is_peer_missing = false;
};

/// The sides take their steps in turn, round by round. Throws IoError if a side of ours does not start.
TensorResult bench_tensor(const TensorBench& bench);

/// `tandem bench tensor`: reads its settings, prints and writes the result.
int run_tensor(const Arguments& arguments);
settings::Schema tensor_schema();

}  // namespace tandem::cli
