#include "tandem/rendezvous/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tandem/base/error.h"

namespace tandem::rendezvous {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Launch> detect(const Variables& variables) {
  return detect_launch([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string error_of(const Variables& variables) {
  try {
    detect(variables);
  } catch (const SettingsError& error) {
    return error.what();
  }
  return "";
}

/// What each launcher sets, as recorded, and what it means. An empty launcher: none.
struct Case {
  const char* name;
  Variables variables;
  Launch wanted;
};

std::vector<Case> cases() {
  const Variables torchrun = {{"RANK", "3"},
                              {"GROUP_RANK", "1"},
                              {"LOCAL_RANK", "1"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "host"},
                              {"MASTER_PORT", "29400"},
                              {"TORCHELASTIC_RUN_ID", "none"},
                              {"TORCHELASTIC_RESTART_COUNT", "1"},
                              {"TORCHELASTIC_MAX_RESTARTS", "3"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  auto own_store = torchrun, own_launch = torchrun, in_slurm = torchrun;
  own_store["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  own_launch["TORCHELASTIC_RUN_ID"] = kOwnRunId;
  in_slurm.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NODELIST", "a,b"}});
  return {
      {"nothing", {{"PATH", "/bin"}}, {}},
      {"torchrun", torchrun, {"torchrun", 3, 4, 1, 2, "host", 29400, 1, true}},
      {"torchrun that leaves the store to rank 0", own_store, {"torchrun", 3, 4, 1, 2, "host", 29400, 1, false}},
      {"torchrun on each node of a SLURM job", in_slurm, {"torchrun", 3, 4, 1, 2, "host", 29400, 1, true}},
      {"tandem launch", own_launch, {"tandem launch", 3, 4, 1, 2, "host", 29400, 1, true}},
      {"by hand",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "5000"}},
       {"environment", 1, 2, 1, 2, "10.0.0.1", 5000, 0, false}},
      {"srun on two nodes",
       {{"SLURM_PROCID", "5"},
        {"SLURM_NTASKS", "6"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NODEID", "1"},
        {"SLURM_TASKS_PER_NODE", "4,2"},
        {"SLURM_JOB_NODELIST", "gpu[07-08]"},
        {"SLURM_JOB_ID", "42"},
        {"SLURM_STEP_ID", "0"},
        {"MASTER_PORT", "29500"}},
       {"slurm", 5, 6, 1, 2, "gpu07", 29500, 0, false}},
      {"a step that is smaller than its SLURM job",
       {{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "8"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
        {"SLURM_TASKS_PER_NODE", "4(x2)"},
        {"SLURM_STEP_NODELIST", "n[3,5]"},
        {"SLURM_JOB_NODELIST", "n[1-8]"},
        {"MASTER_PORT", "29500"}},
       {"slurm", 0, 2, 0, 1, "n3", 29500, 0, false}},
      {"the third task of srun -N 2 -n 3, SLURM 22.05",
       {{"SLURM_PROCID", "2"},
        {"SLURM_NTASKS", "3"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NODEID", "1"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_STEP_NUM_TASKS", "3"},
        {"SLURM_TASKS_PER_NODE", "2,1"},
        {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
        {"SLURM_STEP_NODELIST", "n[1-2]"},
        {"SLURM_JOB_NODELIST", "n[1-2]"},
        {"SLURM_LAUNCH_NODE_IPADDR", "10.77.0.2"},
        {"MASTER_PORT", "29500"}},
       {"slurm", 2, 3, 0, 1, "n1", 29500, 0, false}},
      {"a batch script of three tasks that calls no srun",
       {{"ENVIRONMENT", "BATCH"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "3"},
        {"SLURM_JOB_ID", "2"},
        {"SLURM_TASKS_PER_NODE", "3"},
        {"SLURM_JOB_NODELIST", "n[1-2]"}},
       {}},
      {"the shell of salloc -n 3",
       {{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "3"},
        {"SLURM_STEP_ID", "4294967290"},
        {"SLURM_STEP_NUM_TASKS", "1"},
        {"SLURM_JOB_NODELIST", "n1"}},
       {}},
      {"a task by itself in SLURM", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, {}},
      {"OpenMPI on one host",
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"PMIX_RANK", "1"},
        {"MASTER_PORT", "29501"}},
       {"openmpi", 1, 2, 1, 2, "127.0.0.1", 29501, 0, false}},
      {"OpenMPI on several hosts",
       {{"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"MASTER_ADDR", "first"},
        {"MASTER_PORT", "29501"}},
       {"openmpi", 2, 4, 0, 2, "first", 29501, 0, false}},
      {"MPICH",
       {{"PMI_RANK", "1"},
        {"PMI_SIZE", "2"},
        {"MPI_LOCALRANKID", "1"},
        {"MPI_LOCALNRANKS", "2"},
        {"MASTER_PORT", "29502"}},
       {"mpich", 1, 2, 1, 2, "127.0.0.1", 29502, 0, false}},
      {"Intel MPI",
       {{"PMI_RANK", "0"},
        {"PMI_SIZE", "2"},
        {"MPI_LOCALRANKID", "0"},
        {"MPI_LOCALNRANKS", "2"},
        {"I_MPI_MPIRUN", "mpirun"},
        {"MASTER_PORT", "29503"}},
       {"mpich", 0, 2, 0, 2, "127.0.0.1", 29503, 0, false}},
  };
}

TEST(Rendezvous, EachLaunchersEnvironment) {
  for (const auto& [name, variables, wanted] : cases()) {
    const auto launch = detect(variables);
    EXPECT_EQ(launch.has_value(), !wanted.launcher.empty()) << name;
    if (!launch) continue;
    EXPECT_EQ(launch->launcher, wanted.launcher) << name;
    EXPECT_EQ(launch->rank, wanted.rank) << name;
    EXPECT_EQ(launch->size, wanted.size) << name;
    EXPECT_EQ(launch->local_rank, wanted.local_rank) << name;
    EXPECT_EQ(launch->local_size, wanted.local_size) << name;
    EXPECT_EQ(launch->address, wanted.address) << name;
    EXPECT_EQ(launch->port, wanted.port) << name;
    EXPECT_EQ(launch->attempt, wanted.attempt) << name;
    EXPECT_EQ(launch->agent_serves_store, wanted.agent_serves_store) << name;
  }
}

/// A step of srun, with one task on each of its nodes.
Variables srun_step(int rank, int size) {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_NODEID", std::to_string(rank)},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NTASKS", std::to_string(size)},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x" + std::to_string(size) + ")"},
          {"SLURM_STEP_NODELIST", "n[1-" + std::to_string(size) + "]"},
          {"SLURM_JOB_NODELIST", "n[1-" + std::to_string(size) + "]"},
          {"SLURM_JOB_ID", "7"}};
}

Variables openmpi(int rank, int size, int local_size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % local_size)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"PMIX_RANK", std::to_string(rank)},
          {"PMIX_NAMESPACE", "prte-1@1"}};
}

Variables hydra(int rank, int size, int local_size) {
  return {{"PMI_RANK", std::to_string(rank)},
          {"PMI_SIZE", std::to_string(size)},
          {"MPI_LOCALRANKID", std::to_string(rank % local_size)},
          {"MPI_LOCALNRANKS", std::to_string(local_size)}};
}

Variables by_hand(int rank, int size) { return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(size)}}; }

const Variables kPlace = {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};

Variables operator+(Variables one, const Variables& other) {
  for (const auto& [name, value] : other) one[name] = value;
  return one;
}

/// Who started the rank decides: its rank and number of ranks, or what the error says.
struct Choice {
  const char* name;
  Variables variables;
  std::string wanted;  // "LAUNCHER RANK/SIZE at ADDRESS", "alone", or the beginning of the error
};

std::string choice_of(const Variables& variables) {
  try {
    const auto launch = detect(variables);
    if (!launch || launch->size == 1) return "alone";
    return launch->launcher + " " + std::to_string(launch->rank) + "/" + std::to_string(launch->size) + " at " +
           launch->address;
  } catch (const SettingsError& error) {
    return error.what();
  }
}

TEST(Rendezvous, WhoStartedTheRankDecides) {
  const Variables pty = {{"SLURM_PTY_PORT", "40000"}}, bash = {{"SLURM_JOB_NAME", "bash"}};
  const Variables agent = {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "none"}};
  auto batch = srun_step(0, 4);
  std::erase_if(batch, [](const auto& variable) { return variable.first.starts_with("SLURM_STEP_"); });
  const auto step_number = [](const char* number) {
    return srun_step(0, 4) + Variables{{"SLURM_STEP_ID", number}, {"SLURM_STEP_NUM_TASKS", ""}};
  };
  const std::string choose = ", wanted those of one launcher: unset ";
  const Choice choices[] = {
      {"srun", srun_step(1, 2), "slurm 1/2 at n1"},
      {"srun --mpi=pmi2", srun_step(1, 2) + Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "slurm 1/2 at n1"},
      {"srun --mpi=pmix", srun_step(1, 2) + Variables{{"PMIX_RANK", "1"}}, "slurm 1/2 at n1"},
      {"srun --mpi=pmix -n 1", srun_step(0, 1) + Variables{{"PMIX_RANK", "0"}}, "alone"},
      {"Open MPI, whose daemons srun started", openmpi(5, 8, 4) + srun_step(1, 2), "openmpi 5/8 at n1"},
      {"Open MPI on the node of the batch script", openmpi(1, 2, 2) + batch, "openmpi 1/2 at 127.0.0.1"},
      {"Open MPI with fewer ranks than nodes", openmpi(1, 2, 1) + srun_step(2, 4), "openmpi 1/2 at n1"},
      {"Open MPI with one daemon", openmpi(1, 2, 2) + srun_step(0, 1), "openmpi 1/2 at 127.0.0.1"},
      {"hydra, whose daemons srun started", hydra(3, 4, 2) + srun_step(1, 2), "mpich 3/4 at n1"},
      {"hydra with one daemon", hydra(1, 2, 2) + srun_step(0, 1), "mpich 1/2 at 127.0.0.1"},
      {"hydra with a rank on each node", hydra(1, 2, 1) + srun_step(1, 2), "mpich 1/2 at n1"},
      {"PMI of more ranks than daemons", Variables{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}} + srun_step(1, 2),
       "mpich 3/4 at n1"},
      {"PMI that may be left over", Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}} + srun_step(1, 4),
       "environment variable PMI_SIZE is 2 and SLURM_STEP_NUM_TASKS is 4" + choose +
           "PMI_RANK and PMI_SIZE, or SLURM_PROCID and SLURM_STEP_NUM_TASKS: what has not started this process"},
      {"mpirun -n 1 in a step of several tasks", openmpi(0, 1, 1) + srun_step(1, 4),
       "environment variable OMPI_COMM_WORLD_SIZE is 1 and SLURM_STEP_NUM_TASKS is 4" + choose +
           "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, or SLURM_PROCID and SLURM_STEP_NUM_TASKS: what has not "
           "started this process"},
      {"two MPIs", openmpi(0, 2, 2) + hydra(0, 4, 4),
       "environment variable OMPI_COMM_WORLD_SIZE is 2 and PMI_SIZE is 4" + choose +
           "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, or PMI_RANK and PMI_SIZE: what has not started this "
           "process"},
      {"torchrun started by srun", by_hand(5, 8) + kPlace + agent + srun_step(1, 2), "torchrun 5/8 at n1"},
      {"torchrun started by mpirun", by_hand(5, 8) + kPlace + agent + openmpi(1, 2, 1), "torchrun 5/8 at n1"},
      {"tandem launch in a shell of SLURM",
       by_hand(1, 2) + kPlace + agent + srun_step(0, 4) + Variables{{"TORCHELASTIC_RUN_ID", kOwnRunId}},
       "tandem launch 1/2 at n1"},
      {"another agent started by srun", by_hand(5, 8) + kPlace + Variables{{"LOCAL_RANK", "1"}} + srun_step(1, 2),
       "environment 5/8 at n1"},
      {"a script in srun's single task", by_hand(1, 2) + kPlace + srun_step(0, 1), "environment 1/2 at n1"},
      {"a job script that tells torch what srun says", by_hand(1, 2) + kPlace + srun_step(1, 2),
       "environment 1/2 at n1"},
      {"left over from a notebook, in srun", by_hand(0, 1) + kPlace + srun_step(1, 2),
       "environment variable WORLD_SIZE is 1 and SLURM_STEP_NUM_TASKS is 2" + choose +
           "RANK and WORLD_SIZE, or SLURM_PROCID and SLURM_STEP_NUM_TASKS: what has not started this process"},
      {"left over from a notebook, in mpirun", by_hand(0, 1) + openmpi(1, 2, 2),
       "environment variable WORLD_SIZE is 1 and OMPI_COMM_WORLD_SIZE is 2" + choose +
           "RANK and WORLD_SIZE, or OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE: what has not started this process"},
      {"WORLD_SIZE of a job script, in srun", srun_step(1, 2) + Variables{{"WORLD_SIZE", "8"}}, "slurm 1/2 at n1"},
      {"sbatch's script", batch, "alone"},
      {"sbatch's script, by its step", step_number("4294967291"), "alone"},
      {"the shell of salloc", step_number("4294967290"), "alone"},
      {"the shell of salloc, by name", step_number("interactive"), "alone"},
      {"srun --pty bash", srun_step(0, 4) + pty + bash, "alone"},
      {"srun --pty in an allocation of another name", srun_step(0, 4) + pty,
       "environment variable SLURM_PTY_PORT is set (srun --pty) and SLURM_STEP_NUM_TASKS is 4, wanted tasks that all "
       "run: start the program by srun without --pty, or unset SLURM_PROCID to train alone"},
      {"srun bash -c", srun_step(0, 4) + bash, "slurm 0/4 at n1"},
      {"srun --pty -n 1", srun_step(0, 1) + pty, "alone"},
      {"mpirun in the shell of srun --pty", openmpi(1, 2, 2) + srun_step(0, 4) + pty + bash,
       "openmpi 1/2 at 127.0.0.1"},
      {"PMIx alone",
       {{"PMIX_RANK", "1"}},
       "environment variable PMIX_RANK is 1 and no variable tells the number of ranks: set RANK and WORLD_SIZE"},
      {"one process by hand", by_hand(0, 1), "alone"},
      {"one process of mpirun", openmpi(0, 1, 1), "alone"},
      {"RANK alone", {{"RANK", "0"}}, "environment variable RANK is set and WORLD_SIZE is not: set both, or neither"},
      {"WORLD_SIZE alone",
       {{"WORLD_SIZE", "4"}},
       "environment variable WORLD_SIZE is set and RANK is not: set both, or neither"},
      {"WORLD_SIZE=1 alone", {{"WORLD_SIZE", "1"}}, "alone"},
      {"two by hand, without a place", by_hand(0, 2),
       "environment variable MASTER_ADDR is not set: with ranks on several hosts, set it to the host of rank 0"},
      {"empty texts", {{"RANK", ""}, {"WORLD_SIZE", ""}, {"SLURM_PROCID", ""}, {"MASTER_ADDR", ""}}, "alone"},
      {"an empty RANK", {{"RANK", ""}, {"WORLD_SIZE", "1"}}, "alone"},
  };
  for (const auto& [name, variables, wanted] : choices) EXPECT_EQ(choice_of(variables), wanted) << name;
}

TEST(Rendezvous, AnAddressMayHaveBrackets) {
  const auto at = [](const std::string& host) { return by_hand(0, 2) + kPlace + Variables{{"MASTER_ADDR", host}}; };
  EXPECT_EQ(choice_of(at("[::1]")), "environment 0/2 at ::1");
  EXPECT_EQ(choice_of(at("::1")), "environment 0/2 at ::1");
  EXPECT_EQ(choice_of(at("[fe80::1%eth0]")), "environment 0/2 at fe80::1%eth0");
  for (const std::string wrong : {"[::1", "::1]", "[]", "[host0]", "[::1]:29500"}) {
    EXPECT_EQ(choice_of(at(wrong)), "environment variable MASTER_ADDR is '" + wrong +
                                        "', wanted a host or an address, such as host0, 10.0.0.1 or ::1");
  }
}

TEST(Rendezvous, WithoutAPortAllProcessesWorkOutTheSame) {
  Variables variables = {{"SLURM_PROCID", "5"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_JOB_NODELIST", "a"},
                         {"SLURM_JOB_ID", "42"}};
  const int port = detect(variables)->port;
  variables["SLURM_PROCID"] = "0";
  EXPECT_EQ(detect(variables)->port, port);
  variables["SLURM_JOB_ID"] = "43";
  EXPECT_NE(detect(variables)->port, port);
}

TEST(Rendezvous, FaultsAreNamed) {
  EXPECT_EQ(error_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
            "environment variable RANK is 'x', wanted a whole number");
  EXPECT_EQ(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
            "rank is 2 of 2 by environment's variables, wanted 0..1");
  EXPECT_EQ(error_of({{"WORLD_SIZE", "2"}}),
            "environment variable WORLD_SIZE is set and RANK is not: set both, or neither");
  EXPECT_EQ(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "99999"}}),
            "environment variable MASTER_PORT is 99999, wanted 1..65535");
  EXPECT_EQ(
      error_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
      "environment variable MASTER_ADDR is not set: with ranks on several hosts, set it to the host of rank 0");
}

TEST(Rendezvous, NodeLists) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("a1,b[1-2]"), "a1");
  EXPECT_EQ(first_host("gpu[07-09,12]"), "gpu07");
  EXPECT_EQ(first_host("gpu[3,5]-ib,c1"), "gpu3-ib");
  EXPECT_EQ(first_host("gpu["), "");
}

}  // namespace
}  // namespace tandem::rendezvous
