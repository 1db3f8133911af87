#include "tandem/rendezvous/environment.h"

#include <gtest/gtest.h>

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

TEST(Rendezvous, WithoutAPortAllProcessesWorkOutTheSame) {
  Variables variables = {
      {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NODELIST", "a"}, {"SLURM_JOB_ID", "42"}};
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
