#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace tandem::job {

enum class Resume { none, newest, from_path };

/// The run's folder and checkpoints.
struct Run {
  std::string out;               // empty: runs/<date>-<letter>
  Resume resume = Resume::none;  // newest: of `out`
  std::string resume_path;       // from_path
  int64_t checkpoint_every = 0;  // steps; 0: an epoch
  int64_t checkpoint_keep = 0;   // newest checkpoints that stay
  bool compares_forms = false;   // the other form of the head is measured as well
};

}  // namespace tandem::job
