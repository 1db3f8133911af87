#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cli/bench/peer_process.h"

namespace tandem::settings {
class Settings;
}

namespace tandem::cli {

/// The side of a benchmark that is not Tandem: a process that says "ready" and then answers each line with numbers.
/// A peer that does not start, that ends, or that answers anything else is missing from then on, and a warning says
/// why. The benchmark then goes on with ours alone.
class Peer {
 public:
  /// `name` as the user knows it. Without a command (the script is gone) the peer is missing.
  Peer(std::string name, const std::optional<std::vector<std::string>>& command);

  const std::string& name() const { return name_; }
  bool is_missing() const { return process_ == nullptr; }

  /// Writes a line, and returns the `count` numbers of the answer. Returns nullopt if the peer is missing.
  std::optional<std::vector<double>> ask(const std::string& line, size_t count);

 private:
  void start(const std::vector<std::string>& command);
  std::optional<std::string> answer_to(const std::string& line);
  void miss(const std::string& why);

  std::string name_;
  std::unique_ptr<PeerProcess> process_;  // null: missing
};

/// Throws SettingsError if a list of a benchmark's settings names what is not known.
void check_names(const settings::Settings& settings, const std::string& key, const std::vector<std::string>& known);

/// To be called after the result is written. Throws IoError if peers are missing that the user asked for by name.
void check_peers(const std::vector<std::string>& missing, bool asked_by_name);

}  // namespace tandem::cli
