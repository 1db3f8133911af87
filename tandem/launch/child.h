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
  std::vector<std::string> arguments;          // argv, from the program's name on
  Variables environment;                       // replace, or are added to, this process's variables
  int input = -1, output = -1;                 // for stdin and stdout; -1: /dev/null, this process's stdout
  sigset_t mask{};                             // signals blocked in the child
  const detail::Guardian* guardian = nullptr;  // gets the process group before the program runs
};

/// Starts a program in a process group of its own. The kernel kills the program if this thread ends first.
/// Returns its process id. Throws UsageError if the file cannot be run, a refusal (base/limits.h) if no process
/// can be made.
pid_t start_child(const ChildOptions& options);

/// The file that the shell would run for `name`: `name` itself if it holds a '/', else the first match in PATH; "" if
/// there is none.
std::string find_program(const std::string& name);

/// Reaps a child that has ended, and kills what is left in its process group. Returns its exit status as a shell counts
/// it (128 + signal), or nullopt if the child still runs.
std::optional<int> reap_child(pid_t child);

}  // namespace tandem::launch
