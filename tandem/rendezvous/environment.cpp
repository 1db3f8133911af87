#include "tandem/rendezvous/environment.h"

#include <array>

#include "tandem/base/env.h"
#include "tandem/base/error.h"
#include "tandem/rendezvous/detail/slurm.h"
#include "tandem/rendezvous/detail/variables.h"
#include "tandem/rendezvous/endpoint.h"

namespace tandem::rendezvous {
namespace {

using detail::Claim;
using detail::Variables;

Launch read_torchruns(const Variables& variables, const char* name) {
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

Launch read_mpi(const Variables& variables, const MpiNames& names) {
  Launch launch;
  launch.launcher = names.launcher;
  launch.rank = variables.number(names.rank);
  launch.size = variables.number(names.size);
  launch.local_rank = variables.number_or(names.local_rank, 0);
  launch.local_size = variables.number_or(names.local_size, launch.size);
  const auto job = variables.text(variables.first_set({names.jobs[0], names.jobs[1]})).value_or("0");
  const auto first = detail::first_host_of_slurm(variables);
  const bool is_one_host = launch.local_size == launch.size && (variables.has(names.local_size) || first.empty());
  set_address(launch, variables, is_one_host ? loopback_address() : first, names.launcher + job);
  return launch;
}

template <const MpiNames& kNames>
std::optional<Claim> claim_of_mpi(const Variables& variables) {
  if (!variables.has(kNames.rank) || !variables.has(kNames.size)) return std::nullopt;
  return Claim{variables.number(kNames.rank), variables.number(kNames.size), kNames.rank, kNames.size,
               [](const Variables& from) { return read_mpi(from, kNames); }};
}

std::optional<Claim> claim_by_hand(const Variables& variables) {
  if (!variables.has("RANK") || !variables.has("WORLD_SIZE")) return std::nullopt;
  return Claim{variables.number("RANK"), variables.number("WORLD_SIZE"), "RANK", "WORLD_SIZE",
               [](const Variables& from) { return read_torchruns(from, "environment"); }};
}

[[noreturn]] void reject(const Claim& one, const Claim& other) {
  const auto names = [](const Claim& claim) { return std::string(claim.rank_name) + " and " + claim.size_name; };
  throw SettingsError("environment variable " + std::string(one.size_name) + " is " + std::to_string(one.size) +
                          " and " + other.size_name + " is " + std::to_string(other.size) +
                          ", wanted those of one launcher",
                      "unset " + names(one) + ", or " + names(other) + ": what has not started this process");
}

/// mpirun starts its daemons by srun, one on each node, and the ranks inherit the daemons' variables. srun --mpi=pmi2
/// sets PMI's variables too, to what SLURM's own say.
std::optional<Claim> claim_of_mpirun(const Variables& variables, const std::optional<Claim>& slurm) {
  const auto open = claim_of_mpi<kOpenMpi>(variables);
  auto pmi = claim_of_mpi<kMpich>(variables);
  const bool is_hydras = variables.has("MPI_LOCALRANKID");
  if (pmi && slurm && !is_hydras && pmi->rank == slurm->rank && pmi->size == slurm->size) pmi.reset();
  if (open && pmi && open->size != pmi->size) reject(*open, *pmi);
  const auto& claim = open ? open : pmi;
  if (!claim || !slurm || claim->size >= slurm->size) return claim;
  if (claim->size == 1 || !(open || is_hydras)) reject(*claim, *slurm);
  return claim;
}

/// srun or mpirun.
std::optional<Claim> claim_of_launcher(const Variables& variables) {
  const auto slurm = detail::claim_of_slurm(variables);
  if (auto mpi = claim_of_mpirun(variables, slurm)) return mpi;
  if (slurm && slurm->size > 1) return slurm;
  if (!slurm && variables.number_or("PMIX_RANK", 0) > 0) {
    throw SettingsError("environment variable PMIX_RANK is " + *variables.text("PMIX_RANK") +
                            " and no variable tells the number of ranks",
                        "set RANK and WORLD_SIZE");
  }
  return std::nullopt;
}

/// A launcher that srun or mpirun started on each node has more ranks than they have.
bool is_started_within(const Claim& outer, const Variables& variables, const Claim& own) {
  return outer.size == 1 || (own.size > outer.size && variables.has("LOCAL_RANK"));
}

void check_whole(const Variables& variables) {
  const auto both = [&](const char* set, const char* missing) {
    throw SettingsError(std::string("environment variable ") + set + " is set and " + missing + " is not",
                        "set both, or neither");
  };
  if (variables.has("RANK")) both("RANK", "WORLD_SIZE");
  if (variables.has("WORLD_SIZE") && variables.number("WORLD_SIZE") != 1) both("WORLD_SIZE", "RANK");
}

std::optional<Launch> detect(const Variables& variables) {
  if (variables.has("RANK") && variables.has("LOCAL_RANK") && variables.has("TORCHELASTIC_RUN_ID")) {
    const bool is_own = variables.text("TORCHELASTIC_RUN_ID") == kOwnRunId;
    return read_torchruns(variables, is_own ? "tandem launch" : "torchrun");
  }
  const auto launcher = claim_of_launcher(variables), by_hand = claim_by_hand(variables);
  if (by_hand) {
    if (launcher && launcher->size != by_hand->size && !is_started_within(*launcher, variables, *by_hand)) {
      reject(*by_hand, *launcher);
    }
    return by_hand->read(variables);
  }
  if (launcher) return launcher->read(variables);
  check_whole(variables);
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
