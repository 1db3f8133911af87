#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem::rendezvous {

/// This process's place among the processes that a launcher started.
struct Launch {
  std::string launcher;  // "tandem launch", "torchrun", "slurm", "openmpi", "mpich" or "environment"
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::string address;
  int port = 0;
  int attempt = 0;                  // how often the launcher has restarted these ranks
  bool agent_serves_store = false;  // the launcher serves it (torchrun, `tandem launch`); rank 0 is a client too
};

/// The run id that `tandem launch` sets, which tells its ranks that it is not torchrun.
inline constexpr const char* kOwnRunId = "tandem-launch";

using Environment = std::function<std::optional<std::string>(const char* name)>;

/// Reads the launcher's variables, in the order torchrun, plain RANK + WORLD_SIZE, SLURM, OpenMPI, MPICH/Intel. Returns
/// nullopt if there is no launcher. Throws SettingsError if its variables contradict each other or one is missing.
std::optional<Launch> detect_launch(const Environment& environment);
std::optional<Launch> detect_launch();  // of this process

/// The first host of a SLURM node list: "gpu[07-09,12]" -> "gpu07", "a1,b[1-2]" -> "a1".
std::string first_host(const std::string& node_list);

}  // namespace tandem::rendezvous
