#include "tandem/comm/rendezvous.h"

#include <charconv>

#include "tandem/base/env.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem::comm {
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

/// The port is the user's, else one that all processes of the job can work out.
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
  launch.agent_serves_store = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  set_address(launch, variables, "", "");
  return launch;
}

Launch from_slurm(const Variables& variables) {
  Launch launch;
  launch.launcher = "slurm";
  launch.rank = variables.number("SLURM_PROCID");
  launch.size = variables.number(variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  launch.local_rank = variables.number_or("SLURM_LOCALID", 0);
  launch.local_size = launch.size;
  const auto nodes =
      variables.text(variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
  const auto job = variables.text("SLURM_JOB_ID").value_or("0") + "." + variables.text("SLURM_STEP_ID").value_or("0");
  set_address(launch, variables, nodes ? first_host(*nodes) : "", "slurm" + job);
  return launch;
}

Launch from_openmpi(const Variables& variables) {
  Launch launch;
  launch.launcher = "openmpi";
  launch.rank = variables.number("OMPI_COMM_WORLD_RANK");
  launch.size = variables.number("OMPI_COMM_WORLD_SIZE");
  launch.local_rank = variables.number_or("OMPI_COMM_WORLD_LOCAL_RANK", 0);
  launch.local_size = variables.number_or("OMPI_COMM_WORLD_LOCAL_SIZE", launch.size);
  const auto job = variables.text("PMIX_NAMESPACE").value_or(variables.text("OMPI_MCA_ess_base_jobid").value_or("0"));
  set_address(launch, variables, host_of_one_node(launch), "openmpi" + job);
  return launch;
}

Launch from_mpich(const Variables& variables) {
  Launch launch;
  launch.launcher = "mpich";
  launch.rank = variables.number("PMI_RANK");
  launch.size = variables.number("PMI_SIZE");
  launch.local_rank = variables.number_or("MPI_LOCALRANKID", 0);
  launch.local_size = variables.number_or("MPI_LOCALNRANKS", launch.size);
  // Hydra gives every job an address of its own for its process manager.
  const auto job = variables.text("PMI_PORT").value_or(variables.text("HYDI_CONTROL_FD").value_or("0"));
  set_address(launch, variables, host_of_one_node(launch), "mpich" + job);
  return launch;
}

std::optional<Launch> detect(const Variables& variables) {
  if (variables.has("RANK") && variables.has("LOCAL_RANK") && variables.has("TORCHELASTIC_RUN_ID")) {
    const bool is_own = variables.text("TORCHELASTIC_RUN_ID") == kOwnRunId;
    return from_torchrun(variables, is_own ? "tandem launch" : "torchrun");
  }
  if (variables.has("RANK") && variables.has("WORLD_SIZE")) return from_torchrun(variables, "environment");
  // An interactive shell in an allocation has SLURM_PROCID too, but only one task.
  if (variables.has("SLURM_PROCID") && variables.number_or("SLURM_NTASKS", 1) > 1) return from_slurm(variables);
  if (variables.has("OMPI_COMM_WORLD_RANK")) return from_openmpi(variables);
  if (variables.has("PMI_RANK") && variables.has("PMI_SIZE")) return from_mpich(variables);
  return std::nullopt;
}

}  // namespace

std::optional<Launch> detect_launch(const Environment& environment) {
  auto launch = detect(Variables(environment));
  if (!launch) return launch;
  if (launch->size < 1 || launch->rank < 0 || launch->rank >= launch->size) {
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

}  // namespace tandem::comm
