#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "tandem/launch/child.h"
#include "tandem/launch/signal_inbox.h"

namespace tandem::launch {

struct AgentOptions {
  int ranks = 1;                       // 1..1024
  std::string path;                    // program
  std::vector<std::string> arguments;  // from its name on
  Variables environment;               // the same for all ranks
  bool hears_stop_signals = false;     // the program does, from its first moment: until then they wait for it
  std::chrono::milliseconds grace{5000};
};

/// Runs one process a rank and waits for all of them. Returns 0, or the exit status of the rank that failed (128 +
/// signal for one that was killed), which a line on stderr names: the first one, but a rank whose communication failed
/// (76) only when no other has a fault of its own. A rank that is suspended is named as what the others waited for.
///
///   a rank fails             the others get SIGTERM, after `grace` SIGKILL
///   a rank ends with 75      preempted and saved: the others get SIGTERM and all the time they need
///   a stop signal here       passed on; the ranks save and end; StopRule says which one kills them
///   SIGUSR2 here             passed on
///   this process is killed   the ranks are killed
///
/// A rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK; its output is this process's output. Rank
/// 0 keeps stdin when it is not a terminal; the others read /dev/null. Nothing of a rank's process group outlives the
/// rank. Throws UsageError (the program cannot be run), IoError (no process can be made); started ranks are killed
/// then.
int run_agent(const AgentOptions& options, SignalInbox& inbox);

}  // namespace tandem::launch
