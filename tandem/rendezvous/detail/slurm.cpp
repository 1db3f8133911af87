#include "tandem/rendezvous/detail/slurm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "tandem/base/error.h"

namespace tandem::rendezvous::detail {
namespace {

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

const char* size_name(const Variables& variables) {
  return variables.first_set({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
}

Launch read_slurm(const Variables& variables) {
  Launch launch;
  launch.launcher = "slurm";
  launch.rank = variables.number("SLURM_PROCID");
  launch.size = variables.number(size_name(variables));
  launch.local_rank = variables.number_or("SLURM_LOCALID", 0);
  const auto tasks = variables.text(variables.first_set({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}));
  launch.local_size = tasks_of_node(tasks.value_or(""), variables.number_or("SLURM_NODEID", 0)).value_or(launch.size);
  const auto nodes = variables.text(variables.first_set({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}));
  const auto job = variables.text("SLURM_JOB_ID").value_or("0") + "." + variables.text("SLURM_STEP_ID").value_or("0");
  set_address(launch, variables, nodes ? first_host(*nodes) : "", "slurm" + job);
  return launch;
}

bool is_one_of(const std::string& text, std::initializer_list<std::string_view> list) {
  return std::ranges::find(list, text) != list.end();
}

/// Only srun's steps are counted from 0; a batch script has no step, or one of the numbers that stand for such shells.
bool is_in_a_step(const Variables& variables, int rank) {
  const auto step = variables.text(variables.first_set({"SLURM_STEP_ID", "SLURM_STEPID"}));
  if (!step) return rank > 0 || variables.has("SLURM_STEP_NUM_TASKS");
  return !is_one_of(*step, {"4294967290", "4294967291", "4294967292", "interactive", "batch", "extern"});
}

/// `srun -n 4 --pty bash` starts four shells, of which only the first has a terminal; the others end at once.
bool is_shell_of_srun(const Variables& variables) {
  return variables.has("SLURM_PTY_PORT") &&
         is_one_of(variables.text("SLURM_JOB_NAME").value_or(""),
                   {"interactive", "bash", "sh", "dash", "zsh", "fish", "ksh", "csh", "tcsh"});
}

}  // namespace

std::optional<Claim> claim_of_slurm(const Variables& variables) {
  if (!variables.has("SLURM_PROCID")) return std::nullopt;
  const char* const size = size_name(variables);
  const Claim claim = {variables.number("SLURM_PROCID"), variables.number_or(size, 1), "SLURM_PROCID", size,
                       read_slurm};
  if (!is_in_a_step(variables, claim.rank)) return std::nullopt;
  if (claim.size == 1 || !variables.has("SLURM_PTY_PORT")) return claim;
  if (claim.rank == 0 && is_shell_of_srun(variables)) return std::nullopt;
  throw SettingsError("environment variable SLURM_PTY_PORT is set (srun --pty) and " + std::string(size) + " is " +
                          std::to_string(claim.size) + ", wanted tasks that all run",
                      "start the program by srun without --pty, or unset SLURM_PROCID to train alone");
}

std::string first_host_of_slurm(const Variables& variables) {
  return first_host(variables.text(variables.first_set({"SLURM_JOB_NODELIST", "SLURM_NODELIST"})).value_or(""));
}

}  // namespace tandem::rendezvous::detail
