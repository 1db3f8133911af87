#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/cli/bench/peer_process.h"

namespace tandem::cli {

/// `command` on so many ranks of this machine, each a process: what `tandem launch` is given.
std::vector<std::string> launched(int ranks, const std::vector<std::string>& command);

/// The command of `tandem bench step` with these settings of a job.
std::vector<std::string> step_command(const std::vector<std::string>& settings);

/// A process of ours that takes steps on command: `tandem bench step`, perhaps launched.
class OwnSide {
 public:
  /// `what`: for errors. Throws IoError if it does not start.
  OwnSide(std::string what, const std::vector<std::string>& command);

  /// What it has told at its start: peak_bytes, of the rank that has most, and wire_bytes, of all ranks in a step.
  const nlohmann::json& facts() const { return facts_; }

  /// What its parts take alone (`tandem bench step`, costs). Throws IoError if it has ended.
  nlohmann::json costs();

  /// Takes steps, and keeps their median seconds. Throws IoError if it has ended.
  void take(int64_t steps);
  const std::vector<double>& rounds() const { return rounds_; }

 private:
  nlohmann::json object_of(const std::string& line) const;

  std::string what_;
  PeerProcess process_;
  nlohmann::json facts_;
  std::vector<double> rounds_;
};

}  // namespace tandem::cli
