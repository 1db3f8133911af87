#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Training steps of parallel strategies beside Python's torch and one rank, on the same model and batch.
struct DdpBench {
  std::vector<std::string> names;   // of strategies; see ddp_names()
  std::vector<std::string> models;  // see ddp_models()
  std::vector<std::string> modes;   // threads, processes
  bool with_peers = true;
  int ranks = 2;
  int64_t batch = 32;  // over all ranks
  int64_t classes = 100;
  int64_t rounds = 5, steps = 5;      // steps of each side in a round
  std::vector<std::string> settings;  // more of ours, such as head.parallel=sharded
};

struct DdpCase {
  std::string name, model, mode;
  int ranks = 0;
  double seconds = 0;                  // of a step: the median over the rounds of a round's median
  std::optional<double> peer_seconds;  // nullopt: there is no peer, or it is missing
  std::optional<double> speedup;       // median over the rounds of the peer's time divided by ours
  double one_rank_seconds = 0;         // of ours on one rank with all threads: what is lost by being split
  double one_rank_ratio = 0;           // median over the rounds of its time divided by ours
  int64_t peak_bytes = 0;              // of the rank that has most
  int64_t wire_bytes = 0;              // over all ranks, of a step
};

struct DdpResult {
  std::vector<DdpCase> cases;
  bool is_peer_missing = false;  // of any case: it did not start, or did not stay
};

/// Strategies that can be measured, in the order of the table; models likewise.
std::vector<std::string> ddp_names();
std::vector<std::string> ddp_models();

/// Measures each strategy and model: ours in each mode, ours on one rank, and the peer take their steps in turn, round
/// by round. Throws IoError if a side of ours does not start.
DdpResult bench_ddp(const DdpBench& bench);

/// `tandem bench ddp`: reads its settings, prints and writes the result.
int run_ddp(const Arguments& arguments);
settings::Schema ddp_schema();

}  // namespace tandem::cli
