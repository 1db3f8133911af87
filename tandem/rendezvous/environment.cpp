#include "tandem/rendezvous/environment.h"

#include <array>
#include <charconv>
#include <string_view>

#include "tandem/base/env.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem::rendezvous {
namespace {

constexpr int kFirstPort = 10000, kNumPorts = 20000;

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return environment_(name).has_value(); }
  std::optional<std::string> text(const char* name) const { return environment_(name); }

  int number(const char* name) const {
    const auto value = environment_(name);
    if (!value)
      throw SettingsError(std::string("environment variable ") + name + " is not set", "the launcher sets it");
    int result = 0;
    const auto [end, fault] = std::from_chars(value->data(), value->data() + value->size(), result);
    if (fault != std::errc() || end != value->data() + value->size()) {
      throw SettingsError(std::string("environment variable ") + name + " is '" + *value + "', wanted a whole number");
    }
    return result;
  }
  int number_or(const char* name, int other) const { return has(name) ? number(name) : other; }

 private:
  const Environment& environment_;
};

int port_from(const std::string& job) { return kFirstPort + static_cast<int>(stream_of(job) % kNumPorts); }

/// Sets address and port. The port is the user's, or else one that all processes of the job can compute.
void set_address(Launch& launch, const Variables& variables, const std::string& host, const std::string& job) {
  launch.address = variables.text("MASTER_ADDR").value_or(host);
  launch.port = variables.has("MASTER_PORT") ? variables.number("MASTER_PORT") : port_from(job);
  if (launch.port < 1 || launch.port > 65535) {
    throw SettingsError("environment variable MASTER_PORT is " + std::to_string(launch.port) + ", wanted 1..65535");
  }
  if (launch.address.empty()) {
    throw SettingsError("environment variable MASTER_ADDR is not set",
                        "with ranks on several hosts, set it to the host of rank 0");
  }
}

std::string host_of_one_node(const Launch& launch) { return launch.local_size == launch.size ? "127.0.0.1" : ""; }

Launch from_torchrun(const Variables& variables, const char* name) {
  Launch launch;
  launch.launcher = name;
  launch.rank = variables.number("RANK");
  launch.size = variables.number("WORLD_SIZE");
  launch.local_rank = variables.number_or("LOCAL_RANK", launch.rank);
  launch.local_size = variables.number_or("LOCAL_WORLD_SIZE", launch.size);
  launch.attempt = variables.number_or("TORCHELASTIC_RESTART_COUNT", 0);
  launch.agent_serves_store = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  set_address(launch, variables, "", "");
  return launch;
}

/// The number of tasks on node `node` in SLURM's list: "2(x3),1" is 2, 2, 2, 1. Returns nullopt if the list does not
/// say.
std::optional<int> tasks_of_node(const std::string& list, int node) {
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    int tasks = 0, times = 1;
    auto read = std::from_chars(at, end, tasks);
    if (read.ec != std::errc()) return std::nullopt;
    if (end - read.ptr > 2 && std::string_view(read.ptr, 2) == "(x") {
      read = std::from_chars(read.ptr + 2, end, times);
      if (read.ec != std::errc() || read.ptr == end || *read.ptr != ')') return std::nullopt;
      ++read.ptr;
    }
    if (node < times) return tasks;
    node -= times;
    if (read.ptr < end && *read.ptr != ',') return std::nullopt;
    at = read.ptr + 1;
  }
  return std::nullopt;
}

Launch from_slurm(const Variables& variables) {
  Launch launch;
  launch.launcher = "slurm";
  launch.rank = variables.number("SLURM_PROCID");
  launch.size = variables.number(variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  launch.local_rank = variables.number_or("SLURM_LOCALID", 0);
  const auto tasks =
      variables.text(variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE");
  launch.local_size = tasks_of_node(tasks.value_or(""), variables.number_or("SLURM_NODEID", 0)).value_or(launch.size);
  const auto nodes =
      variables.text(variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
  const auto job = variables.text("SLURM_JOB_ID").value_or("0") + "." + variables.text("SLURM_STEP_ID").value_or("0");
  set_address(launch, variables, nodes ? first_host(*nodes) : "", "slurm" + job);
  return launch;
}

/// An MPI's names for the same values. `jobs`: variables with a text unique to the job; the first that is set is used.
struct MpiNames {
  const char *launcher, *rank, *size, *local_rank, *local_size;
  std::array<const char*, 2> jobs;
};

constexpr MpiNames kOpenMpi = {"openmpi",
                               "OMPI_COMM_WORLD_RANK",
                               "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK",
                               "OMPI_COMM_WORLD_LOCAL_SIZE",
                               {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}};
// Hydra, MPICH's process manager, has its own address for every job.
constexpr MpiNames kMpich = {"mpich",           "PMI_RANK",        "PMI_SIZE",
                             "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_PORT", "HYDI_CONTROL_FD"}};

Launch from_mpi(const Variables& variables, const MpiNames& names) {
  Launch launch;
  launch.launcher = names.launcher;
  launch.rank = variables.number(names.rank);
  launch.size = variables.number(names.size);
  launch.local_rank = variables.number_or(names.local_rank, 0);
  launch.local_size = variables.number_or(names.local_size, launch.size);
  std::string job = "0";
  for (const auto* name : names.jobs) {
    if (!variables.has(name)) continue;
    job = *variables.text(name);
    break;
  }
  set_address(launch, variables, host_of_one_node(launch), names.launcher + job);
  return launch;
}

/// A batch script, or an interactive shell in an allocation, has SLURM_PROCID too, but is only one task, whatever the
/// size of the allocation.
bool is_task_of_srun(const Variables& variables) {
  if (!variables.has("SLURM_PROCID")) return false;
  if (variables.text("ENVIRONMENT") == "BATCH" && !variables.has("SLURM_STEP_ID")) return false;
  return variables.number_or(variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", 1) > 1;
}

std::optional<Launch> detect(const Variables& variables) {
  if (variables.has("RANK") && variables.has("LOCAL_RANK") && variables.has("TORCHELASTIC_RUN_ID")) {
    const bool is_own = variables.text("TORCHELASTIC_RUN_ID") == kOwnRunId;
    return from_torchrun(variables, is_own ? "tandem launch" : "torchrun");
  }
  if (variables.has("RANK") && variables.has("WORLD_SIZE")) return from_torchrun(variables, "environment");
  const auto both = [&](const char* set, const char* missing) {
    if (!variables.has(set)) return;
    throw SettingsError(std::string("environment variable ") + set + " is set and " + missing + " is not",
                        "set both, or neither");
  };
  if (is_task_of_srun(variables)) return from_slurm(variables);
  if (variables.has("OMPI_COMM_WORLD_RANK")) return from_mpi(variables, kOpenMpi);
  if (variables.has("PMI_RANK") && variables.has("PMI_SIZE")) return from_mpi(variables, kMpich);
  both("RANK", "WORLD_SIZE");
  both("WORLD_SIZE", "RANK");
  return std::nullopt;
}

}  // namespace

std::optional<Launch> detect_launch(const Environment& environment) {
  auto launch = detect(Variables(environment));
  if (!launch) return launch;
  if (launch->size < 1) {
    throw SettingsError("number of ranks is " + std::to_string(launch->size) + " by " + launch->launcher +
                        "'s variables, wanted 1 or more");
  }
  if (launch->rank < 0 || launch->rank >= launch->size) {
    throw SettingsError("rank is " + std::to_string(launch->rank) + " of " + std::to_string(launch->size) + " by " +
                        launch->launcher + "'s variables, wanted 0.." + std::to_string(launch->size - 1));
  }
  return launch;
}

std::optional<Launch> detect_launch() { return detect_launch(env::get); }

std::string first_host(const std::string& node_list) {
  const auto bracket = node_list.find('['), comma = node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) return node_list.substr(0, comma);
  const auto first = node_list.find_first_of(",-]", bracket);
  const auto close = node_list.find(']', bracket);
  if (first == std::string::npos || close == std::string::npos) return "";
  const auto end = node_list.find(',', close);
  return node_list.substr(0, bracket) + node_list.substr(bracket + 1, first - bracket - 1) +
         node_list.substr(close + 1, end == std::string::npos ? end : end - close - 1);
}

}  // namespace tandem::rendezvous
