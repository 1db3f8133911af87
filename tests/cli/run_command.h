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

using Environment = std::map<std::string, std::string>;

/// The command that runs build/tandem with these words.
std::vector<std::string> tandem_command(const std::vector<std::string>& words);

/// build/tandem with these words; launchers' variables of the caller are taken away, `environment` is added.
Ended run_tandem(const std::vector<std::string>& words, const Environment& environment = {});

/// Any program: words[0] is its path or its name on PATH.
Ended run_command(const std::vector<std::string>& words, const Environment& environment = {});

/// The program's code in this process: quicker, for words that start no other process.
Ended run_here(const std::vector<std::string>& words);

/// A program without waiting: its output goes into a pipe that the test reads.
class Running {
 public:
  explicit Running(std::vector<std::string> command, const Environment& environment = {});
  ~Running();  // kills what still runs

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  std::string read_line();  // of stdout; "" at its end
  Ended wait();

 private:
  std::string read_rest(int file);

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
};

/// Waits until no process of that id is left (or it is a zombie); false after ten seconds.
bool is_gone_soon(pid_t pid);

}  // namespace tandem::test
