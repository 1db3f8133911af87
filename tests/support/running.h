#pragma once
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace tandem::test {

struct Ended {
  int status = 0;  // as a shell counts: 128 + signal
  std::string out, err;
};

/// Reads a program's stdout and stderr to their ends, at once: neither pipe may fill up unread.
void read_both(int out, int err, Ended& ended);

using Environment = std::map<std::string, std::string>;

/// Any program: words[0] is its path or its name on PATH. Launchers' variables of the caller are taken away,
/// `environment` is added.
Ended run_command(const std::vector<std::string>& words, const Environment& environment = {});

/// The same without waiting: its output goes into a pipe that the test reads.
class Running {
 public:
  explicit Running(std::vector<std::string> command, const Environment& environment = {});
  ~Running();  // kills what still runs
  Running(const Running&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  std::string read_line();  // of stdout; "" at its end
  Ended wait();

 private:
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
};

/// Waits until no process of that id is left (or it is a zombie); false after ten seconds.
bool is_gone_soon(pid_t pid);

}  // namespace tandem::test
