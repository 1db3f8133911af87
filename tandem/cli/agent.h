#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "tandem/cli/child.h"
#include "tandem/cli/signal_inbox.h"

namespace tandem::cli {

struct AgentOptions {
  int ranks = 1;                       // 1..1024
  std::string path;                    // program
  std::vector<std::string> arguments;  // from its name on
  Variables environment;               // the same for all ranks
  std::chrono::milliseconds grace{5000};
};

/// Runs one process a rank and waits for all of them. Returns 0, or the exit status of the first that failed (128 +
/// signal for one that was killed), which a line on stderr names.
///
///   a rank fails             the others get SIGTERM, after `grace` SIGKILL
///   a rank ends with 75      preempted and saved: the others get SIGTERM and all the time they need
///   SIGINT, SIGTERM, SIGHUP, SIGQUIT here   passed on; the ranks save and end; a second one kills them
///   SIGUSR1, SIGUSR2 here    passed on
///   this process is killed   the ranks are killed
///
/// A rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK; its output is this process's output. Rank
/// 0 keeps stdin when it is not a terminal; the others read /dev/null. Nothing of a rank's process group outlives the
/// rank. Throws UsageError (the program cannot be run), IoError (no process can be made); started ranks are killed
/// then.
int run_agent(const AgentOptions& options, SignalInbox& inbox);

}  // namespace tandem::cli
