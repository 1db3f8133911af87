#pragma once
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::launch {

namespace detail {
class Guardian;
}

using Variables = std::vector<std::pair<std::string, std::string>>;

struct ChildOptions {
  std::string path;                            // the program's file
  std::vector<std::string> arguments;          // from its name on
  Variables environment;                       // these replace or join this process's own
  int input = -1, output = -1;                 // files of its stdin and stdout; -1: /dev/null, this process's own
  sigset_t mask{};                             // signals that are blocked in it
  const detail::Guardian* guardian = nullptr;  // learns of the process group before the program runs
};

/// Starts a program in a process group of its own, which the kernel kills when this thread ends first.
/// Returns its process id. Throws UsageError when the file cannot be run, IoError when no process can be made.
pid_t start_child(const ChildOptions& options);

/// The file that the shell would run for `name`: itself when it holds a '/', else the first of PATH; "" for none.
std::string find_program(const std::string& name);

/// The exit status of a child that has ended, as a shell counts (128 + signal), or nothing. Whatever it left in its
/// process group is killed; then the child is gone.
std::optional<int> reap_child(pid_t child);

}  // namespace tandem::launch
