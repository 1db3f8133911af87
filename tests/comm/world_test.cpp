#include "tandem/comm/world.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tests/support/text_of.h"

namespace tandem::comm {
namespace {

using test::text_of;

TEST(World, ARankThatThrowsReleasesTheOthersAndIsNamed) {
  for (const auto transport : {Transport::memory, Transport::segments, Transport::sockets}) {
    WorldOptions options;
    options.transport = transport;
    options.timeout = std::chrono::seconds(30);
    const auto start = std::chrono::steady_clock::now();
    const auto text = text_of([&] {
      run_ranks(
          3,
          [](ProcessGroup& group) {
            all_reduce(at::ones({4}), group);
            if (group.rank() == 1) throw DataError("image 'a.png' is not an image", "remove it");
            all_reduce(at::ones({4}), group);
          },
          options);
    });
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_EQ(text, "image 'a.png' is not an image (rank 1 of 3): remove it");
    EXPECT_LT(seconds, 2.0) << name_of(transport);
  }
}

TEST(World, TheTypeOfTheExceptionIsKept) {
  EXPECT_THROW(run_ranks(2,
                         [](ProcessGroup& group) {
                           if (group.rank() == 0) throw IoError("disk is full");
                           barrier(group);
                         }),
               IoError);
}

TEST(World, DifferentOperationsAreToldApart) {
  const auto text = text_of([] {
    run_ranks(2, [](ProcessGroup& group) {
      if (group.rank() == 0) all_reduce(at::ones({4}), group);
      if (group.rank() == 1) barrier(group);
    });
  });
  EXPECT_NE(text.find("rank 0 calls all_reduce of Float [4] (sum) at world_test.cpp:53 and rank 1 calls barrier at "
                      "world_test.cpp:54"),
            std::string::npos)
      << text;
}

TEST(World, DifferentSizesAreToldApart) {
  const auto text =
      text_of([] { run_ranks(2, [](ProcessGroup& group) { all_reduce(at::ones({4 + group.rank()}), group); }); });
  EXPECT_NE(text.find(" and rank 1 calls all_reduce of Float [5] (sum) at world_test.cpp:"), std::string::npos) << text;
}

TEST(World, AMissingRankIsNamedAfterTheTimeout) {
  WorldOptions options;
  options.timeout = std::chrono::milliseconds(200);
  const auto text = text_of([&] {
    run_ranks(
        3,
        [](ProcessGroup& group) {
          if (group.rank() != 2) barrier(group);
        },
        options);
  });
  EXPECT_NE(text.find("rank 2 did not come within 200 ms"), std::string::npos) << text;
}

TEST(World, ThreadsAreShared) {
  run_ranks(4, [](ProcessGroup&) { EXPECT_GE(at::get_num_threads(), 1); });
  WorldOptions options;
  options.threads = 3;
  run_ranks(
      2, [](ProcessGroup&) { EXPECT_EQ(at::get_num_threads(), 3); }, options);
}

TEST(World, RejectsNoRanks) {
  EXPECT_EQ(text_of([] { run_ranks(0, [](ProcessGroup&) {}); }), "run_ranks: number of ranks is 0, wanted 1 or more");
}

TEST(World, WithoutALauncherThereIsAGroupOfOne) {
  const auto group = join_world(std::nullopt);
  EXPECT_EQ(group->size(), 1);
  EXPECT_TRUE(all_reduce(at::ones({2}), *group).equal(at::ones({2})));
  EXPECT_EQ(join_world()->size(), 1);  // nor does this process's environment name one
}

TEST(World, WithoutALauncherItsRanksAreThreads) {
  std::atomic<int> ranks = 0;
  run_world(3, [&](ProcessGroup& group) { ranks += 10 * group.size() + group.rank(); });
  EXPECT_EQ(ranks, 93);
  EXPECT_EQ(
      text_of([] { run_world(2, [](ProcessGroup& group) { throw DataError("no " + group.name()); }); }).substr(0, 14),
      "no world (rank");
}

TEST(World, WhateverIsThrownIsCaught) {
  EXPECT_EQ(text_of([] {
              run_ranks(2, [](ProcessGroup& group) {
                if (group.rank() == 1) throw 42;
                barrier(group);
              });
            }),
            "rank 1 of 2: an exception of unknown type");
}

}  // namespace
}  // namespace tandem::comm
