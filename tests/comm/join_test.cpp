#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tests/support/ports.h"
#include "tests/support/text_of.h"

// Processes that meet, and those that do not: ranks here are threads that each join as a process would.
namespace tandem::comm {
namespace {

using test::free_port;
using test::TakenPort;
using test::text_of;

Launch launch_of(int rank, int size, int port) {
  Launch launch;
  launch.launcher = "environment";
  launch.rank = launch.local_rank = rank;
  launch.size = launch.local_size = size;
  launch.address = "127.0.0.1";
  launch.port = port;
  return launch;
}

WorldOptions with_init_timeout(std::chrono::milliseconds timeout) {
  WorldOptions options;
  options.init_timeout = timeout;
  options.timeout = std::chrono::seconds(20);
  return options;
}

TEST(Join, APortThatIsTakenIsNamed) {
  const TakenPort port;
  const auto text =
      text_of([&] { join_world(launch_of(0, 2, port.number()), with_init_timeout(std::chrono::seconds(2))); });
  EXPECT_EQ(text, "port " + std::to_string(port.number()) +
                      " is taken, wanted a free one for the ranks to meet at: set MASTER_PORT to another");
}

TEST(Join, ARankThatDoesNotComeIsNamed) {
  const int port = free_port();
  const auto text =
      text_of([&] { join_world(launch_of(0, 3, port), with_init_timeout(std::chrono::milliseconds(300))); });
  EXPECT_EQ(text, "of 3 ranks that should meet at 127.0.0.1:" + std::to_string(port) +
                      ", rank 1, rank 2 did not come within 0.3 s");
}

TEST(Join, AMissingRankZeroIsNamed) {
  const int port = free_port();
  const auto text = text_of([&] { join_world(launch_of(1, 2, port), with_init_timeout(std::chrono::seconds(1))); });
  EXPECT_EQ(text, "rank 0 does not answer at 127.0.0.1:" + std::to_string(port) + " within 1 s");
}

TEST(Join, AHostWithoutAnAddressIsNamed) {
  auto launch = launch_of(1, 2, free_port());
  launch.address = "nowhere.invalid";
  const auto text = text_of([&] { join_world(launch, with_init_timeout(std::chrono::seconds(20))); });
  EXPECT_TRUE(text.starts_with("host 'nowhere.invalid', where rank 0 should be, has no address: ")) << text;
  EXPECT_TRUE(text.ends_with("; set MASTER_ADDR to an address that every rank can reach")) << text;
}

TEST(Join, AnotherProgramAtThePortIsNamed) {
  const TakenPort port;  // listens and says nothing
  const auto text =
      text_of([&] { join_world(launch_of(1, 2, port.number()), with_init_timeout(std::chrono::milliseconds(500))); });
  EXPECT_EQ(text, "nobody at 127.0.0.1:" + std::to_string(port.number()) +
                      " answers as the ranks' meeting place within 0.5 s: set MASTER_ADDR to an address of rank 0's "
                      "host and MASTER_PORT to a free port");
}

TEST(Join, WorldsOfOtherSizesAreNamed) {
  const int port = free_port();
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  std::array<std::string, 2> texts;
  const auto body = [&](int rank) {
    texts[rank] =
        text_of([&] { join_world(launch_of(rank, 2 + rank, port), with_init_timeout(std::chrono::seconds(5))); });
  };
  std::thread zero(body, 0), one(body, 1);
  zero.join();
  one.join();
  EXPECT_EQ(texts[0], "rank 1 is one of 3 and rank 0 one of 2, wanted the same: set WORLD_SIZE alike");
}

TEST(Join, WhoIsAskedToStopDoesNotWait) {
  for (const int rank : {0, 1}) {
    auto options = with_init_timeout(std::chrono::minutes(5));
    options.stop_requested = [] { return true; };
    const auto text = text_of([&] { join_world(launch_of(rank, 2, free_port()), options); });
    EXPECT_EQ(text, "stopped while the ranks waited for each other to come; nothing had begun");
  }
}

TEST(Join, ARankThatComesTwiceIsNamed) {
  const int port = free_port();
  const auto options = with_init_timeout(std::chrono::seconds(20));
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // as run_ranks does with several ranks in a process
  std::promise<void> is_told;
  const auto told = is_told.get_future().share();
  const auto body = [&](int rank) {
    const auto group = join_world(launch_of(rank, 2, port), options);
    EXPECT_EQ(all_reduce(at::ones({1}), *group).item<float>(), 2);
    told.wait();  // the store lives as long as rank 0
  };
  std::thread zero(body, 0), one(body, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(text_of([&] { join_world(launch_of(1, 2, port), options); }),
            "rank 1 has come to 127.0.0.1:" + std::to_string(port) + " twice, wanted one process of each rank");
  is_told.set_value();
  zero.join();
  one.join();
}

}  // namespace
}  // namespace tandem::comm
