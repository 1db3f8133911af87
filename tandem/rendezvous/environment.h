#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem::rendezvous {

/// Where this process stands among the processes that a launcher started.
struct Launch {
  std::string launcher;  // "tandem launch", "torchrun", "slurm", "openmpi", "mpich" or "environment"
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::string address;
  int port = 0;
  int attempt = 0;                  // how often the launcher has started these ranks again
  bool agent_serves_store = false;  // torchrun and `tandem launch` serve it: every rank, 0 too, is a client
};

/// The run id that `tandem launch` gives, by which its ranks know it from torchrun.
inline constexpr const char* kOwnRunId = "tandem-launch";

using Environment = std::function<std::optional<std::string>(const char* name)>;

/// Reads the launcher's variables, in the order torchrun, SLURM, OpenMPI, MPICH/Intel, plain RANK + WORLD_SIZE.
/// Nothing when no launcher is there. Throws SettingsError when its variables contradict each other or one is missing.
std::optional<Launch> detect_launch(const Environment& environment);
std::optional<Launch> detect_launch();  // of this process

/// First host of a SLURM node list: "gpu[07-09,12]" -> "gpu07", "a1,b[1-2]" -> "a1".
std::string first_host(const std::string& node_list);

}  // namespace tandem::rendezvous
