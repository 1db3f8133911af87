#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace tandem::job {

enum class Resume { none, newest, from_path };

/// What is written of each block's values in each step.
enum class Traced : uint8_t { nothing, hash, stats };

/// The run's folder and checkpoints.
struct Run {
  std::string out;               // empty: runs/<date>-<letter>
  Resume resume = Resume::none;  // newest: from the newest checkpoint in `out`
  std::string resume_path;       // from_path
  int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch
  int64_t checkpoint_keep = 0;   // number of newest checkpoints to keep
  std::string best;              // score of a test whose best checkpoint is kept too; empty: none
  bool compares_forms = false;   // predicts the memory of the other form of the head
  Traced traced = Traced::nothing;
};

}  // namespace tandem::job
