#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/job/parts.h"
#include "tests/job/job_of.h"

namespace tandem::job {

/// What a job of some steps leaves.
struct Trained {
  std::vector<double> losses;  // of each step
  train::Scores scores;        // of the test
  std::string weights_hash;
};

struct Place {
  c10::DeviceType type = c10::DeviceType::CPU;  // rank r computes on the device of this type with index r
  int ranks = 1;                                // threads
  bool operators = false;                       // on the CPU: the head's operators in place of its kernels
  std::filesystem::path folder = {};            // for checkpoints of steps 4 and 8; empty: none
  bool resumes = false;                         // from step 4
};

/// Trains a job on Patterns, whatever its `ranks` and `device` are. Returns what rank 0 has.
Trained train_on(const Place& place, std::vector<std::string> words);

/// Networks, heads and optimizers that take different ways through the code: more words for a job.
std::vector<std::vector<std::string>> device_cases();

}  // namespace tandem::job
