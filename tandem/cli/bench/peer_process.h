#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::cli {

/// A program that answers lines with lines, for benchmarks; killed at the end.
class PeerProcess {
 public:
  /// Throws UsageError when the program cannot be run, IoError.
  explicit PeerProcess(const std::vector<std::string>& command);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;

  void write_line(const std::string& line);
  std::optional<std::string> read_line();  // nothing at its end

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string buffer_;
};

/// bench/NAME/peers.py of the sources that this program was built from, and a Python with torch for it (TANDEM_PYTHON,
/// .venv's, python3). Nothing where the sources are gone.
std::optional<std::vector<std::string>> peer_command(const std::string& bench);

}  // namespace tandem::cli
