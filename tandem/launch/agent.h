#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "tandem/launch/child.h"
#include "tandem/launch/signal_inbox.h"

namespace tandem::launch {

struct AgentOptions {
  int ranks = 1;                       // of this machine, 1..1024
  int node = 0, nodes = 1;             // this machine among those of the job, each of which has as many ranks
  std::string path;                    // program
  std::vector<std::string> arguments;  // argv, from the program's name on
  Variables environment;               // added for all ranks
  bool hears_stop_signals = false;     // the ranks start with stop signals blocked and unblock them
  std::chrono::milliseconds grace{5000};
};

/// Runs one process per rank of this machine and waits for all of them. Returns 0 if all ranks succeed. If a rank
/// fails, returns its exit status (128 + signal if it was killed) and names it in a line on stderr. If several fail,
/// the first one counts; a rank whose communication failed (76) counts only if no other has a fault of its own. The
/// line also names a suspended rank, for which the others waited. A rank that has left its error's line and status has
/// failed with that status, even if a signal from here ends it. If the ranks only stopped as asked, returns the status
/// of the first (75, or 128 + signal); after a second SIGINT 130.
///
///   a rank fails             the others get SIGTERM, after `grace` SIGKILL
///   a rank's communication   the same, as soon as another rank fails for its own reason or is suspended, or after 5 s
///   fails (76)
///   all that run are         after `grace` SIGKILL, if another has ended: nothing else would end them
///   suspended
///   a rank ends with 75      preempted and saved: the others get SIGTERM and all the time they need
///   a stop signal here       passed on; the ranks save and end; StopRule says which one kills them
///   SIGUSR2 here             passed on
///   this process is killed   the ranks are killed
///
/// A rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK and TORCHELASTIC_ERROR_FILE, in which a rank
/// of this program leaves the line of its error: the agent prints that of the rank it names. A rank's output is this
/// process's output. Rank 0 of the job keeps stdin unless it is a terminal; the others read /dev/null. No process of a
/// rank's process group outlives the rank. Throws UsageError (the program cannot be run) and refusals of processes and
/// descriptors (base/limits.h), after killing the ranks already started.
int run_agent(const AgentOptions& options, SignalInbox& inbox);

}  // namespace tandem::launch
