#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tandem/comm/collectives.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/segments/stage.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::comm {
namespace {

using test::text_of;
using Sizes = std::vector<int64_t>;

WorldOptions over(Transport transport, int milliseconds = 30'000) {
  return {.timeout = std::chrono::milliseconds(milliseconds), .transport = transport};
}

/// Sizes that all ranks draw alike: some that a slot holds exactly, nearly, several times, not at all; and what the
/// rank sends, other numbers in each call.
class Draws {
 public:
  Draws(int seed, int rank) : random_(static_cast<unsigned>(seed)), rank_(rank) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  int64_t rows() {
    constexpr int64_t kSlot = Stage::kSlotBytes / 8;
    constexpr std::array<int64_t, 8> kRows = {0, 1, 3, 2'048, 2'049, kSlot, kSlot + 1, 5 * kSlot / 2};
    return kRows[static_cast<size_t>(below(kRows.size()))];
  }
  Sizes sizes(int ranks) {
    Sizes sizes;
    for (int rank = 0; rank < ranks; ++rank) sizes.push_back(rows());
    return sizes;
  }
  Tensor numbers(int64_t rows) { return at::sin(at::arange(rows, at::kDouble) * 0.7 + rank_ + 10 * ++calls_); }
  Tensor numbers(const Sizes& sizes) { return numbers(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})); }

 private:
  std::mt19937 random_;
  const int rank_;
  int calls_ = 0;
};

using Begin = std::function<Handle(Draws&, ProcessGroup&)>;

const std::vector<Begin> kCalls = {
    [](Draws& draws, ProcessGroup& group) { return all_reduce_async(draws.numbers(draws.rows()), group); },
    [](Draws& draws, ProcessGroup& group) {
      return all_reduce_async(draws.numbers(draws.rows()), group, Reduce::mean);
    },
    [](Draws& draws, ProcessGroup& group) {
      const int root = draws.below(group.size());
      return broadcast_async(draws.numbers(draws.rows()), root, group);
    },
    [](Draws& draws, ProcessGroup& group) {
      const int root = draws.below(group.size());
      return reduce_sum_async(draws.numbers(draws.rows()), root, group);
    },
    [](Draws& draws, ProcessGroup& group) {
      const int root = draws.below(group.size());
      const auto sizes = draws.sizes(group.size());
      return gather_async(draws.numbers(sizes[group.rank()]), root, group, 0, sizes);
    },
    [](Draws& draws, ProcessGroup& group) {
      const int root = draws.below(group.size());
      const auto sizes = draws.sizes(group.size());
      return scatter_async(draws.numbers(sizes), root, group, 0, sizes);
    },
    [](Draws& draws, ProcessGroup& group) {
      const auto sizes = draws.sizes(group.size());
      return all_gather_async(draws.numbers(sizes[group.rank()]), group, 0, sizes);
    },
    [](Draws& draws, ProcessGroup& group) {
      const auto sizes = draws.sizes(group.size());
      return reduce_scatter_async(draws.numbers(sizes), group, 0, sizes);
    },
    [](Draws& draws, ProcessGroup& group) {
      const auto sizes = draws.sizes(group.size());
      return all_to_all_async(draws.numbers(sizes), group, 0, sizes);
    }};

/// Of 72 calls, up to three of which are on their way at a time.
std::vector<std::vector<Tensor>> results_of(int ranks, Transport transport) {
  std::vector<std::vector<Tensor>> results(ranks);
  run_ranks(
      ranks,
      [&](ProcessGroup& group) {
        EXPECT_EQ(group.transport(), transport);
        auto& own = results[group.rank()];
        Draws draws(ranks, group.rank());
        for (int round = 0; round < 24; ++round) {
          std::vector<Handle> begun;
          for (int i = 0; i < 3; ++i) begun.push_back(kCalls[draws.below(kCalls.size())](draws, group));
          for (auto& handle : begun) own.push_back(handle.wait());
        }
      },
      over(transport));
  return results;
}

/// Sums run in rank order both here and there.
TEST(Segments, AllCallsOfAllSizesHaveTheBitsOfThreads) {
  for (const int ranks : {2, 3, 5}) {
    const auto expected = results_of(ranks, Transport::memory), results = results_of(ranks, Transport::segments);
    for (int rank = 0; rank < ranks; ++rank) {
      for (size_t i = 0; i < results[rank].size(); ++i) {
        EXPECT_TRUE(results[rank][i].equal(expected[rank][i])) << "call " << i << ", rank " << rank << " of " << ranks;
      }
    }
  }
}

TEST(Segments, TypesThatAreOnlyMovedMayBeAny) {
  run_ranks(
      2,
      [](ProcessGroup& group) {
        const auto all = all_gather(at::full({2}, c10::complex<float>(1, group.rank()), at::kComplexFloat), group);
        EXPECT_TRUE(at::imag(all).equal(at::tensor({0.F, 0.F, 1.F, 1.F})));
      },
      over(Transport::segments));
}

std::vector<std::string> texts_of(int ranks, const std::function<void(ProcessGroup&)>& body, int milliseconds) {
  std::vector<std::string> texts(ranks);
  run_ranks(
      ranks, [&](ProcessGroup& group) { texts[group.rank()] = text_of([&] { body(group); }); },
      over(Transport::segments, milliseconds));
  return texts;
}

void expect_all_hold(const std::vector<std::string>& texts, const std::string& part) {
  for (const auto& text : texts) EXPECT_NE(text.find(part), text.npos) << "'" << text << "' holds no '" << part << "'";
}

/// Gloo would end the process that gets too much, and let the other wait.
TEST(Segments, CallsThatDifferAreToldToAllRanks) {
  constexpr int kLine = __LINE__ + 1;
  const auto sizes = [](ProcessGroup& group) { all_reduce(at::ones({4 + group.rank() / 2}), group); };
  expect_all_hold(texts_of(3, sizes, 30'000),
                  "rank 0 calls all_reduce of Float [4] (sum) at segments_test.cpp:" + std::to_string(kLine) +
                      " and rank 2 calls all_reduce of Float [5] (sum) at segments_test.cpp:" + std::to_string(kLine));
  const auto operations = [](ProcessGroup& group) {
    group.rank() == 1 ? barrier(group) : void(all_reduce(at::ones({2}), group));
  };
  expect_all_hold(texts_of(2, operations, 30'000), " and rank 1 calls barrier at segments_test.cpp:");
  const auto parts = [](ProcessGroup& group) {
    const Sizes told = group.rank() == 0 ? Sizes{2, 3} : Sizes{1, 3};
    all_gather(at::ones({told[group.rank()]}), group, 0, told);
  };
  expect_all_hold(texts_of(2, parts, 30'000), " and gives rank 1 8 bytes, rank 1 calls all_gather of Float [3] at ");
}

TEST(Segments, ARankThatHasLeftIsNamed) {
  const auto late = [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    barrier(group);
  };
  const auto texts = texts_of(3, late, 20'000);  // it leaves long before
  EXPECT_NE(texts[0].find("rank 1 has left"), std::string::npos) << texts[0];
  EXPECT_EQ(texts[1], "nothing thrown");
  EXPECT_NE(texts[2].find("rank 1 has left"), std::string::npos) << texts[2];
}

size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(Segments, NothingStaysOpen) {
  const auto join = [] {
    run_ranks(
        3, [](ProcessGroup& group) { group.split(group.rank() == 0 ? 0 : 1); }, over(Transport::segments));
  };
  join();  // Gloo's threads start
  const auto before = open_files();
  for (int i = 0; i < 5; ++i) join();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (open_files() > before && std::chrono::steady_clock::now() < end) std::this_thread::yield();  // Gloo's close
  EXPECT_EQ(open_files(), before);
}

/// One wants sockets, or is not of this library: the others must not wait for it.
TEST(Segments, AreUsedOnlyIfAllRanksDo) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // as run_ranks() does for Gloo
  for (const int other : {0, 1, 2}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto transport = rank == other ? Transport::sockets : Transport::segments;
        ProcessGroup group(process_connect(store, std::chrono::seconds(30), transport), "world", {0, 1, 2}, rank);
        EXPECT_EQ(group.transport(), Transport::sockets);
        EXPECT_TRUE(all_reduce(at::ones({2}), group).eq(3).all().item<bool>());
      });
    }
    for (auto& rank : ranks) rank.join();
  }
}

}  // namespace
}  // namespace tandem::comm
