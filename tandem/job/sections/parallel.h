#pragma once
#include <chrono>

namespace tandem::job {

/// The ranks that train together, and how long they wait for each other.
struct Parallel {
  int ranks = 1;    // of the whole job
  int threads = 0;  // of a rank; 0: cores / ranks
  std::chrono::milliseconds init_timeout{}, timeout{};
  bool check = false;  // of every collective call
};

}  // namespace tandem::job
