#pragma once
#include <filesystem>
#include <string>

#include "tandem/job/job.h"
#include "tandem/storage/json_log.h"
#include "tandem/train/block_trace.h"

namespace tandem::cli {

/// A run's blocks.jsonl: a line that says how, then a line for each value of each step.
inline constexpr const char* kBlocksFile = "blocks.jsonl";

/// Writes it, from the step on from which a run starts or goes on.
class BlockFileWriter {
 public:
  struct Start {
    std::filesystem::path folder, earlier;  // of the run, and of that which goes on in it, often the same
    int64_t step = 0;                       // steps of the earlier run that are kept
  };
  /// Begins with the lines of the earlier run, if it has some. Throws IoError; SettingsError if those in the run's own
  /// folder were written in another way.
  BlockFileWriter(const Start& start, const job::Job& job, int ranks_of_batch);

  void write(const train::Trace& step);

 private:
  job::Traced kind_;
  bool goes_on_;
  storage::JsonLog log_;
};

/// What such a file holds.
struct BlockFile {
  std::string kind, precision;  // "hash" or "stats"; "float32", ...
  int64_t ranks_of_batch = 1;
  train::Trace trace;
};

/// `run`: a run's folder, or the file. Throws DataError: there is none, or a line is not one.
BlockFile read_block_file(const std::filesystem::path& run);

/// "step 2, micro-batch 1: output of block layer1.0 differs by 3.1e-05"
std::string text_of(const train::TraceDifference& first);

}  // namespace tandem::cli
