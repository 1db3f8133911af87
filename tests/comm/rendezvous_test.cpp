#include "tandem/comm/rendezvous.h"

#include <gtest/gtest.h>

#include <map>

#include "tandem/base/error.h"

namespace tandem::comm {
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

TEST(Rendezvous, NothingWithoutALauncher) { EXPECT_FALSE(detect({{"PATH", "/bin"}})); }

TEST(Rendezvous, Torchrun) {
  const auto launch = detect({{"RANK", "3"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "host"},
                              {"MASTER_PORT", "29400"},
                              {"TORCHELASTIC_RUN_ID", "none"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "torchrun");
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->size, 4);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 2);
  EXPECT_EQ(launch->address, "host");
  EXPECT_EQ(launch->port, 29400);
  EXPECT_TRUE(launch->agent_serves_store);
}

TEST(Rendezvous, TorchrunGoesBeforeSlurm) {
  const auto launch = detect({{"RANK", "0"},
                              {"WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "a"},
                              {"MASTER_PORT", "1"},
                              {"SLURM_PROCID", "7"},
                              {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(launch->launcher, "environment");
  EXPECT_FALSE(launch->agent_serves_store);
}

TEST(Rendezvous, SlurmTakesTheFirstHost) {
  const Variables variables = {{"SLURM_PROCID", "5"},
                               {"SLURM_NTASKS", "8"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                               {"SLURM_JOB_ID", "42"}};
  const auto launch = detect(variables);
  EXPECT_EQ(launch->launcher, "slurm");
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->size, 8);
  EXPECT_EQ(launch->address, "gpu07");
  EXPECT_EQ(launch->port, detect(variables)->port);
}

TEST(Rendezvous, AnInteractiveSlurmShellIsNoLauncher) {
  EXPECT_FALSE(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}));
}

TEST(Rendezvous, OpenMpiOnOneHostNeedsNoAddress) {
  const auto launch = detect({{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(launch->launcher, "openmpi");
  EXPECT_EQ(launch->address, "127.0.0.1");
}

TEST(Rendezvous, Mpich) {
  const auto launch = detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_PORT", "29501"}});
  EXPECT_EQ(launch->launcher, "mpich");
  EXPECT_EQ(launch->port, 29501);
}

TEST(Rendezvous, FaultsAreNamed) {
  EXPECT_EQ(error_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
            "environment variable RANK is 'x', wanted a whole number");
  EXPECT_EQ(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
            "rank is 2 of 2 by environment's variables, wanted 0..1");
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
}  // namespace tandem::comm
