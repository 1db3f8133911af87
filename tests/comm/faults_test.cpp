#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <random>

#include "tandem/flight/analysis.h"
#include "tests/support/files.h"
#include "tests/support/ports.h"
#include "tests/support/running.h"

// Jobs of three processes in which one throws, exits, is killed or stopped, at a random step: the others must end
// within their timeout, and the records must name the right one. TANDEM_FAULTS=100 makes a hundred of them.
namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;

struct Fault {
  int rank, step;
  std::string kind;
};

void expect_named(const Fault& fault, const std::string& text) {
  const auto rank = "rank " + std::to_string(fault.rank);
  const auto wanted = fault.kind == "throw"
                          ? rank + " ended by itself: image 'a.png' is not an image"
                          : rank + " left no record (killed, stopped, ended early, or its machine is gone)";
  EXPECT_EQ(text.substr(0, wanted.size()), wanted) << text << "\n" << fault.kind << " in step " << fault.step;
}

void run_job(const Fault& fault, int port) {
  constexpr int kRanks = 3;
  const test::TemporaryFolder folder;
  const std::vector<std::string> command = {std::getenv("TANDEM_FAULTY_RANK"), folder.path().string(),
                                            std::to_string(fault.rank), std::to_string(fault.step), fault.kind};
  std::vector<std::unique_ptr<test::Running>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<test::Running>(command, test::Environment{{"RANK", std::to_string(rank)},
                                                                               {"WORLD_SIZE", std::to_string(kRanks)},
                                                                               {"MASTER_ADDR", "127.0.0.1"},
                                                                               {"MASTER_PORT", std::to_string(port)}}));
  }
  const auto start = Clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == fault.rank) continue;
    EXPECT_EQ(ranks[rank]->wait().status, 1) << "rank " << rank << ": " << fault.kind << " in step " << fault.step;
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(15));
  ranks[fault.rank]->signal(SIGKILL);
  ranks[fault.rank]->wait();
  expect_named(fault, flight::diagnose_flight(folder.path()));
}

TEST(Faults, TheOthersEndInTimeAndTheRightRankIsNamed) {
  const char* asked = std::getenv("TANDEM_FAULTS");
  const int count = asked ? std::atoi(asked) : 4;
  std::mt19937 random(20'261'121);
  const std::vector<std::string> kinds = {"throw", "exit", "kill", "stop"};
  for (int i = 0; i < count; ++i) {
    const Fault fault{std::uniform_int_distribution<int>(0, 2)(random),
                      std::uniform_int_distribution<int>(0, 999)(random), kinds[i % kinds.size()]};
    run_job(fault, test::free_port());
  }
}

}  // namespace
}  // namespace tandem::comm
