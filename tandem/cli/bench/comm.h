#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::cli {

struct CommBench {
  int ranks = 4;
  std::vector<int64_t> sizes;           // bytes; multiples of 4 * ranks
  std::vector<std::string> operations;  // empty: all
  double seconds_a_case = 0.5;
};

struct BenchCase {
  std::string operation;
  int ranks = 0;
  int64_t bytes = 0;
  double seconds = 0;        // a call of ours
  double gloo_seconds = 0;   // the same call of the same interface over Gloo
  double floor_seconds = 0;  // a plain copy of as many bytes as the call must read and write, by all ranks at once
};

struct CommBenchResult {
  std::vector<BenchCase> cases;          // threads against Gloo
  std::vector<BenchCase> over_segments;  // as processes of one host, against Gloo
  std::vector<BenchCase> over_gloo;      // Tandem's own algorithms over Gloo against Gloo's
};

/// Compares thread-ranks that read each other's memory, and that copy through segments as processes do, with those over
/// Gloo's sockets, in turn. Times are medians of the slowest rank's time.
CommBenchResult bench_comm(const CommBench& bench);

std::vector<std::string> bench_operations();

}  // namespace tandem::cli
