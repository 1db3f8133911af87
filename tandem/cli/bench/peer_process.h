#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::cli {

/// A child process that answers lines with lines, for benchmarks. The destructor kills it.
class PeerProcess {
 public:
  /// Throws UsageError if the program cannot be run, IoError if no process or socket can be made.
  explicit PeerProcess(const std::vector<std::string>& command);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;

  void write_line(const std::string& line);
  std::optional<std::string> read_line();  // nullopt when the process has ended

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string buffer_;
};

/// Returns the command for bench/<bench>/peers.py of the sources that this program was built from, run by
/// TANDEM_PYTHON, else the Python of .venv, else python3. Returns nullopt if the script does not exist.
std::optional<std::vector<std::string>> peer_command(const std::string& bench);

}  // namespace tandem::cli
