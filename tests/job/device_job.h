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
  c10::Device device = c10::DeviceType::CPU;  // that the ranks share; without an index rank r has the r-th
  int ranks = 1;                              // threads
  int steps = 8;
  bool operators = false;             // libtorch's in place of kernels
  std::filesystem::path folder = {};  // for checkpoints of steps 4 and 8; empty: none
  bool resumes = false;               // from step 4
};

/// Trains a job on Patterns, whatever its `ranks` and `device` are. Returns what rank 0 has.
Trained train_on(const Place& place, std::vector<std::string> words);

/// Networks, heads and optimizers that take different ways through the code: more words for a job.
std::vector<std::vector<std::string>> device_cases();

/// Each way in which ranks share the work, with recomputation and norms that take different ways: a number of ranks,
/// and more words for a job.
struct SharedCase {
  int ranks;
  std::vector<std::string> words;
  bool is_exact = true;  // whether libtorch and Tandem do on a device what they do on the CPU, to the bit
  int waits = 1;         // of the host for the device in a step
};
std::vector<SharedCase> shared_cases();

}  // namespace tandem::job
