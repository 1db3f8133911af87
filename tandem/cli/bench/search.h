#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Steps of an architecture search beside the same algorithm in Python's torch.
struct SearchBench {
  std::vector<int64_t> orders, ranks;
  int64_t channels = 8, cells = 5, size = 32, batch = 32, classes = 10;
  int64_t rounds = 3, steps = 1;  // steps of each side in a round
  bool with_recompute = true;     // order 2 also with each block computed again
  bool with_peers = true;
  std::vector<std::string> settings;  // more of ours, such as search.hvp=fd
};

struct SearchCase {
  int order = 2, ranks = 1;
  bool recomputes = false;
  double seconds = 0;  // of a step: the median over the rounds
  int64_t peak_bytes = 0;
  std::optional<double> peer_seconds, speedup;  // nullopt: the peer is missing
  std::optional<int64_t> peer_peak_bytes;
};

struct SearchResult {
  std::vector<SearchCase> cases;
  bool is_peer_missing = false;
};

/// Each rank is a process with one thread; the sides take their steps in turn. Throws IoError if a side of ours does
/// not start.
SearchResult bench_search(const SearchBench& bench);

/// `tandem bench search`: reads its settings, prints and writes the result.
int run_bench_search(const Arguments& arguments);
settings::Schema bench_search_schema();

}  // namespace tandem::cli
