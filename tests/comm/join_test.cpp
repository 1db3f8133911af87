#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/rendezvous/listen.h"
#include "tandem/rendezvous/meeting.h"
#include "tests/support/ports.h"
#include "tests/support/text_of.h"

// Processes that meet, and those that do not: ranks here are threads that each join as a process would.
namespace tandem::comm {
namespace {

using test::free_port;
using test::TakenPort;
using test::text_of;

rendezvous::Launch launch_of(int rank, int size, int port) {
  rendezvous::Launch launch;
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

/// What each of these ranks throws when all join at once; "" when it does not.
std::vector<std::string> join_all(const std::vector<std::function<void()>>& ranks) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // as run_ranks does with several ranks in a process
  std::vector<std::string> texts(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      texts[i] = text_of(ranks[i]);
      if (texts[i] == "nothing thrown") texts[i].clear();
    });
  }
  for (auto& thread : threads) thread.join();
  return texts;
}

TEST(Join, AWrongNumberOfRanksIsToldByBothSides) {
  const int port = free_port();
  const auto place = "127.0.0.1:" + std::to_string(port);
  const auto options = with_init_timeout(std::chrono::seconds(3));
  const auto texts = join_all(
      {[&] { join_world(launch_of(0, 2, port), options); }, [&] { join_world(launch_of(1, 3, port), options); }});
  EXPECT_EQ(texts[0], "of 2 ranks that should meet at " + place +
                          ", rank 1 did not come within 3 s; a process that said it was rank 1 of 3 was refused: set "
                          "WORLD_SIZE alike");
  EXPECT_EQ(texts[1], "rank 1 is one of 3 and rank 0 at " + place +
                          " one of 2, wanted the same: set WORLD_SIZE alike, or MASTER_PORT to another port for "
                          "another job");
}

TEST(Join, AStrangerOfAnotherSizeEndsNobodysJob) {
  const int port = free_port();
  const auto options = with_init_timeout(std::chrono::seconds(20));
  std::promise<void> is_refused;
  const auto member = [&](int rank) {
    const auto group = join_world(launch_of(rank, 2, port), options);
    EXPECT_EQ(all_reduce(at::ones({1}), *group).item<float>(), 2);
    barrier(*group);
  };
  const auto texts = join_all({[&] { member(0); },
                               [&] {
                                 is_refused.get_future().wait();
                                 member(1);
                               },
                               [&] {
                                 const auto text = text_of([&] { join_world(launch_of(1, 3, port), options); });
                                 EXPECT_EQ(text.substr(0, 31), "rank 1 is one of 3 and rank 0 a") << text;
                                 is_refused.set_value();
                               }});
  EXPECT_EQ(texts, (std::vector<std::string>{"", "", ""}));
}

TEST(Join, AllTellTheSameWhoDidNotCome) {
  const int port = free_port();
  const auto body = [&](int rank, int ms) {
    return [=] { join_world(launch_of(rank, 3, port), with_init_timeout(std::chrono::milliseconds(ms))); };
  };
  const auto texts = join_all({body(0, 3000), body(2, 20'000)});
  const auto wanted =
      "of 3 ranks that should meet at 127.0.0.1:" + std::to_string(port) + ", rank 1 did not come within 3 s";
  EXPECT_EQ(texts[0], wanted);
  EXPECT_EQ(texts[1], wanted);
}

TEST(Join, OneThatIsAskedToStopTakesTheOthersAlong) {
  for (const int asked : {0, 1}) {
    const int port = free_port();
    const auto questions = std::make_shared<std::array<std::atomic<int>, 2>>();  // each rank asks while it waits
    const auto body = [&](int rank) {
      auto options = with_init_timeout(std::chrono::minutes(5));
      options.stop_requested = [=] {
        ++(*questions)[rank];
        return rank == asked && (*questions)[0] > 40 && (*questions)[1] > 40;
      };
      return [=] { join_world(launch_of(rank, 3, port), options); };
    };
    const auto texts = join_all({body(0), body(1)});
    for (const auto& text : texts) {
      EXPECT_EQ(text, "stopped while the ranks waited for each other to come; nothing had begun");
    }
  }
}

TEST(Join, TheStoreListensAtItsAddressAlone) {
  const int port = free_port();
  auto options = with_init_timeout(std::chrono::minutes(5));
  std::atomic<bool> stop{false};
  options.stop_requested = [&] { return stop.load(); };
  std::thread zero([&] { text_of([&] { join_world(launch_of(0, 2, port), options); }); });
  EXPECT_TRUE(test::is_served_soon(port));
  EXPECT_THROW(close(rendezvous::listen_at("127.0.0.1", port).file), std::system_error);
  const auto elsewhere = rendezvous::listen_at("127.0.0.2", port);  // who listens everywhere holds this one too
  EXPECT_EQ(elsewhere.port, port);
  close(elsewhere.file);
  stop = true;
  zero.join();
}

TEST(Join, AnAddressOfAnotherMachineIsNamed) {
  auto launch = launch_of(0, 2, free_port());
  launch.address = "192.0.2.1";  // of documentation: nobody's
  EXPECT_EQ(text_of([&] { join_world(launch, with_init_timeout(std::chrono::seconds(20))); }),
            "'192.0.2.1' is no address of this machine, on which rank 0 runs: set MASTER_ADDR to one that is");
}

TEST(Join, AServerThatEndsIsNamed) {
  const int port = free_port();
  c10d::TCPStoreOptions of_store;
  of_store.isServer = true;
  of_store.waitWorkers = false;
  of_store.port = static_cast<uint16_t>(port);
  auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", of_store);
  const auto texts = join_all({[&] { join_world(launch_of(1, 2, port), with_init_timeout(std::chrono::minutes(5))); },
                               [&] {
                                 server->get(rendezvous::key_of(launch_of(1, 2, port), "arrived/1"));  // waits for it
                                 server.reset();
                               }});
  EXPECT_EQ(texts[0], "rank 0 has ended while the ranks met at 127.0.0.1:" + std::to_string(port));
}

TEST(Join, ARankThatIsLostBeforeAllAreConnectedIsNamed) {
  for (const int lost : {0, 2}) {
    const int port = free_port();
    auto options = with_init_timeout(std::chrono::seconds(20));
    options.timeout = std::chrono::milliseconds(1500);
    const auto body = [&](int rank) {
      return [=] {
        if (rank == lost) {
          const auto store = rendezvous::meet(launch_of(rank, 3, port), {.timeout = options.init_timeout}).store;
          // Rank 0 takes the store with it, when the others are looking for who is lost.
          if (rank == 0) store->get(rendezvous::key_of(launch_of(rank, 3, port), "there/1"));
        } else {
          join_world(launch_of(rank, 3, port), options);
        }
      };
    };
    const auto texts = join_all({body(0), body(1), body(2)});
    const auto wanted = "of 3 ranks that met at 127.0.0.1:" + std::to_string(port) + ", rank " + std::to_string(lost) +
                        " was lost before all were connected (killed, suspended, or its machine is gone): ";
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      EXPECT_EQ(texts[rank].substr(0, wanted.size()), wanted) << texts[rank];
    }
  }
}

/// As one that is suspended: the others would wait for it as long as for an operation, which may take minutes.
TEST(Join, ARankThatNeverConnectsIsNamedByTheInitTimeout) {
  const int port = free_port();
  auto options = with_init_timeout(std::chrono::seconds(2));
  options.timeout = std::chrono::minutes(10);
  std::promise<void> is_told;
  const auto texts = join_all({[&] {
                                 const auto text = text_of([&] { join_world(launch_of(0, 2, port), options); });
                                 is_told.set_value();
                                 throw std::runtime_error(text);
                               },
                               [&] {
                                 const auto met = rendezvous::meet(launch_of(1, 2, port), {});
                                 is_told.get_future().wait();
                               }});
  EXPECT_EQ(texts[0], "of 2 ranks that met at 127.0.0.1:" + std::to_string(port) +
                          ", rank 1 was lost before all were connected (killed, suspended, or its machine is gone): no "
                          "answer within 2 s");
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
