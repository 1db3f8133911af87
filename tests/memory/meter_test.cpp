#include "tandem/memory/meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "tandem/base/ownership.h"
#include "tandem/base/rng.h"
#include "tandem/memory/detail/machine_memory.h"
#include "tandem/memory/table.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

int64_t live(int rank, Category category) { return account(rank).live[static_cast<int>(category)]; }

class Meter : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_meter(); }
};

TEST_F(Meter, CountsExactBytesPerRankAndCategory) {
  const RankScope rank(3);
  const CategoryScope scope(Category::activations);
  const auto before = live(3, Category::activations);
  {
    const auto bytes = at::empty({3}, at::kChar);
    EXPECT_EQ(live(3, Category::activations), before + 3);
    const auto floats = at::empty({1000}, at::kFloat);
    EXPECT_EQ(live(3, Category::activations), before + 4003);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(floats.data_ptr()) % 64, 0u);
  }
  EXPECT_EQ(live(3, Category::activations), before);
}

TEST_F(Meter, ScopesNest) {
  const RankScope rank(4);
  const CategoryScope outer(Category::parameters);
  const auto weight = at::empty({10}, at::kFloat);
  Tensor gradient;
  {
    const CategoryScope inner(Category::gradients);
    gradient = at::empty({5}, at::kFloat);
  }
  const auto more = at::empty({1}, at::kFloat);
  EXPECT_EQ(live(4, Category::parameters), 44);
  EXPECT_EQ(live(4, Category::gradients), 20);
}

TEST_F(Meter, ThePeakRemembersItsCategories) {
  const RankScope rank(5);
  CategoryScope scope(Category::activations);
  auto first = at::empty({100}, at::kFloat);
  {
    const CategoryScope gradients(Category::gradients);
    const auto second = at::empty({50}, at::kFloat);
  }
  first.reset();
  const auto third = at::empty({100}, at::kFloat);
  const auto books = account(5);
  EXPECT_EQ(books.peak_bytes(), 600);
  EXPECT_EQ(books.at_peak[static_cast<int>(Category::gradients)], 200);
  EXPECT_EQ(books.live_bytes(), 400);
  reset_peak(5);
  EXPECT_EQ(account(5).peak_bytes(), 400);
}

TEST_F(Meter, ABlockFreedElsewhereLeavesItsOwnersBooks) {
  Tensor tensor;
  std::thread([&] {
    const RankScope rank(6);
    const CategoryScope scope(Category::buffers);
    tensor = at::empty({8}, at::kDouble);
  }).join();
  EXPECT_EQ(live(6, Category::buffers), 64);
  tensor.reset();
  EXPECT_EQ(live(6, Category::buffers), 0);
}

TEST_F(Meter, TagMovesAStorageOnce) {
  const RankScope rank(7);
  const CategoryScope scope(Category::activations);
  const auto tensor = at::empty({4}, at::kDouble);
  tag(tensor, Category::gradients);
  tag(tensor.narrow(0, 1, 2), Category::gradients);
  EXPECT_EQ(live(7, Category::activations), 0);
  EXPECT_EQ(live(7, Category::gradients), 32);
  tag(at::from_blob(tensor.data_ptr(), {4}, at::kDouble), Category::optimizer);  // not ours to move
  EXPECT_EQ(live(7, Category::gradients), 32);
}

TEST_F(Meter, ResizedTensorsStayInTheBooks) {
  const RankScope rank(8);
  auto tensor = at::empty({4}, at::kFloat);
  tensor.resize_({40});
  EXPECT_EQ(account(8).live_bytes(), 160);
  tensor.reset();
  EXPECT_EQ(account(8).live_bytes(), 0);
}

TEST_F(Meter, BooksCloseAfterConvolutions) {  // oneDNN's scratch goes through the raw interface
  const RankScope rank(9);
  {
    const auto x = at::randn({8, 3, 32, 32}), weight = at::randn({16, 3, 3, 3});
    for (int i = 0; i < 3; ++i) at::conv2d(x, weight, {}, 1, 1);
  }
  EXPECT_EQ(account(9).live_bytes(), 0);
  EXPECT_GT(account(9).peak_bytes(), 0);
}

TEST_F(Meter, AProbeHasABookOfItsOwn) {
  const RankScope rank(1023);
  const auto weight = at::empty({10}, at::kFloat);
  const auto before = account(1023);
  {
    ProbeScope probe;
    const CategoryScope scope(Category::activations);
    const auto first = at::empty({100}, at::kFloat);
    ProbeScope within;
    const auto second = at::empty({7}, at::kFloat);
    EXPECT_EQ(within.account().live_bytes(), 28);
    EXPECT_EQ(probe.account().live_bytes(), 400);
    EXPECT_EQ(probe.account().at_peak[static_cast<int>(Category::activations)], 400);
  }
  EXPECT_EQ(account(1023).live, before.live);
  EXPECT_EQ(account(1023).at_peak, before.at_peak);
}

TEST_F(Meter, ProbesBeginEmptyHoweverOthersEnded) {
  Tensor stays;
  {
    ProbeScope probe;
    stays = at::empty({100}, at::kFloat);
  }
  for (int i = 0; i < 200; ++i) EXPECT_EQ(ProbeScope().account().peak_bytes(), 0);
  std::vector<std::unique_ptr<ProbeScope>> open;
  for (int i = 0; i < 4095; ++i) open.push_back(std::make_unique<ProbeScope>());  // one is kept by what stays
  EXPECT_EQ(test::text_of([] { ProbeScope one_more; }),
            "memory meter: 4096 probes are open or hold memory, wanted fewer");
  while (!open.empty()) open.pop_back();
}

TEST_F(Meter, AThreadThatBelongsToNobodyIsInABookOfItsOwn) {
  const RankScope rank(10);
  const auto before = account(Context::kNobody).live_bytes();
  Tensor tensor;
  std::thread([&] { tensor = at::empty({8}, at::kDouble); }).join();
  EXPECT_EQ(account(Context::kNobody).live_bytes(), before + 64);
  EXPECT_EQ(account(10).live_bytes(), 0);
  tensor.reset();
  EXPECT_EQ(account(Context::kNobody).live_bytes(), before);
}

TEST_F(Meter, ATagCountsAtThePeakToo) {
  const RankScope rank(11);
  const CategoryScope scope(Category::activations);
  const auto old = at::empty({10}, at::kFloat);
  at::empty({20}, at::kFloat);  // the peak
  const auto later = at::empty({1}, at::kFloat);
  tag(old, Category::gradients);
  tag(later, Category::gradients);
  const auto books = account(11);
  EXPECT_EQ(books.at_peak, (CategoryBytes{0, 40, 0, 80, 0, 0, 0}));
  EXPECT_EQ(books.live, (CategoryBytes{0, 44, 0, 0, 0, 0, 0}));
  tag(old, Category::optimizer);
  EXPECT_EQ(account(11).at_peak, (CategoryBytes{0, 0, 40, 80, 0, 0, 0}));
  reset_peak(11);
  tag(later, Category::buffers);
  EXPECT_EQ(account(11).at_peak, (CategoryBytes{0, 0, 40, 0, 4, 0, 0}));
}

TEST_F(Meter, EachByteBelongsToABlock) {
  const RankScope rank(12);
  const CategoryScope scope(Category::activations);
  const int first = block_number("meter test: first"), second = block_number("meter test: second");
  const auto outside = at::empty({1}, at::kFloat);
  Tensor kept;
  {
    const BlockScope block(second);
    kept = at::empty({2}, at::kFloat);
    at::empty({4}, at::kFloat);
  }
  const BlockScope block(first);
  const auto late = at::empty({1}, at::kFloat);
  tag(kept, Category::gradients);
  const auto books = account(12);
  ASSERT_EQ(books.blocks.size(), 3u);
  EXPECT_EQ(books.blocks[0].block, 0);
  EXPECT_EQ(books.blocks[0].at_peak, (CategoryBytes{0, 0, 0, 4, 0, 0, 0}));
  EXPECT_EQ(books.blocks[1].block, first);
  EXPECT_EQ(books.blocks[1].at_peak, CategoryBytes{});
  EXPECT_EQ(books.blocks[1].live, (CategoryBytes{0, 0, 0, 4, 0, 0, 0}));
  EXPECT_EQ(books.blocks[2].block, second);
  EXPECT_EQ(books.blocks[2].at_peak, (CategoryBytes{0, 8, 0, 16, 0, 0, 0}));
}

TEST_F(Meter, ATagMayNameTheBlock) {
  const RankScope rank(19);
  const int block = block_number("meter test: of a tag");
  const auto tensor = at::empty({2}, at::kFloat);
  EXPECT_EQ(block_of(tensor), 0);
  tag(tensor, Category::parameters, block);
  tag(tensor, Category::gradients);
  EXPECT_EQ(block_of(tensor), block);
  const auto books = account(19);
  ASSERT_EQ(books.blocks.size(), 1u);
  EXPECT_EQ(books.blocks[0].block, block);
  EXPECT_EQ(books.blocks[0].at_peak, (CategoryBytes{0, 8, 0, 0, 0, 0, 0}));
}

/// The blocks, and the categories, add up to the same; nothing is negative.
void expect_closed(const Account& books) {
  CategoryBytes live{}, at_peak{};
  for (const auto& block : books.blocks) {
    for (int i = 0; i < kNumCategories; ++i) {
      EXPECT_GE(block.live[i], 0);
      EXPECT_GE(block.at_peak[i], 0);
      live[i] += block.live[i];
      at_peak[i] += block.at_peak[i];
    }
  }
  EXPECT_EQ(live, books.live);
  EXPECT_EQ(at_peak, books.at_peak);
}

TEST_F(Meter, BooksCloseAtEveryEvent) {
  const RankScope rank(13);
  std::vector<Tensor> tensors;
  int64_t live_bytes = 0, peak = 0;
  CounterRng rng(1, 2, 3);
  for (int i = 0; i < 2000; ++i) {
    const auto category = static_cast<Category>(rng.next() % kNumCategories);
    const size_t place = tensors.empty() ? 0 : rng.next() % tensors.size();
    switch (tensors.empty() ? 0 : rng.next() % 4) {
      case 0:
      case 1: {
        const CategoryScope scope(category);
        const BlockScope block(block_number("meter test: " + std::to_string(rng.next() % 5)));
        const auto bytes = static_cast<int64_t>(1 + rng.next() % 100);
        tensors.push_back(at::empty({bytes}, at::kChar));
        live_bytes += bytes;
        break;
      }
      case 2:
        tag(tensors[place], category);
        break;
      default:
        live_bytes -= tensors[place].numel();
        tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(place));
    }
    if (i == 1000) {
      reset_peak(13);
      peak = live_bytes;
    }
    peak = std::max(peak, live_bytes);
    const auto books = account(13);
    ASSERT_EQ(books.live_bytes(), live_bytes) << i;
    ASSERT_EQ(books.peak_bytes(), peak) << i;
    expect_closed(books);
  }
}

TEST_F(Meter, AWatchSeesThePeakOfItsStretches) {
  const RankScope rank(14);
  const CategoryScope scope(Category::activations);
  const auto kept = at::empty({1}, at::kFloat);
  PeakWatch watch(14);
  at::empty({100}, at::kFloat);  // before
  watch.begin();
  at::empty({2}, at::kFloat);
  watch.end();
  at::empty({100}, at::kFloat);  // between
  watch.begin();
  auto late = at::empty({3}, at::kFloat);
  tag(kept, Category::parameters);
  watch.end();
  late.reset();
  EXPECT_EQ(watch.account().at_peak, (CategoryBytes{4, 0, 0, 12, 0, 0, 0}));
  EXPECT_EQ(watch.account().live, (CategoryBytes{4, 0, 0, 0, 0, 0, 0}));
  tag(kept, Category::buffers);
  EXPECT_EQ(watch.account().at_peak, (CategoryBytes{0, 0, 0, 12, 4, 0, 0}));
  EXPECT_EQ(account(14).peak_bytes(), 404);
}

TEST_F(Meter, EventsAreKeptInOrder) {
  const ContextScope scope({.rank = 15, .category = Category::activations, .phase = Phase::backward, .step = 7});
  EventLog log(15);
  auto tensor = at::empty({10}, at::kFloat);
  tag(tensor, Category::gradients);
  tag(tensor, Category::gradients);
  EXPECT_EQ(log.size(), 2u);
  tensor.reset();
  const auto events = log.end();
  at::empty({10}, at::kFloat);
  ASSERT_EQ(events.size(), 3u);
  using What = Event::What;
  const std::array<What, 3> whats = {What::allocate, What::move, What::free};
  const std::array<int64_t, 3> live = {40, 40, 0};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].what, whats[i]);
    EXPECT_EQ(events[i].bytes, 40);
    EXPECT_EQ(events[i].live, live[i]);
    EXPECT_EQ(events[i].category, i == 0 ? Category::activations : Category::gradients);
    EXPECT_EQ(events[i].phase, Phase::backward);
    EXPECT_EQ(events[i].step, 7);
  }
  EXPECT_LE(events[0].seconds, events[2].seconds);
}

TEST_F(Meter, ALimitIsKept) {
  const RankScope rank(16);
  const CategoryScope scope(Category::activations);
  std::optional<LimitScope> limit(std::in_place, 16, 100);
  EXPECT_FALSE(limit->refused());
  const auto fits = at::empty({25}, at::kFloat);
  EXPECT_EQ(test::text_of<c10::OutOfMemoryError>([] {
              const BlockScope block(block_number("layer1"));
              at::empty({3}, at::kChar);
            }),
            "memory: 3 bytes more for activations of rank 16, block 'layer1', are 3 above its limit of 100 bytes");
  EXPECT_EQ(account(16).live_bytes(), 100);
  EXPECT_EQ(account(16).peak_bytes(), 100);
  EXPECT_EQ(limit->refused()->live_bytes(), 100);
  limit.reset();
  at::empty({3}, at::kChar);
}

TEST_F(Meter, WhatIsGivenAwayIsCountedForItsNewOwner) {
  Tensor message;
  {
    const RankScope sender(17);
    message = at::empty({5}, at::kFloat);
  }
  const ContextScope receiver({.rank = 18, .category = Category::activations});
  adopt(message);
  adopt(message);
  EXPECT_EQ(account(17).live_bytes(), 0);
  EXPECT_EQ(account(17).peak_bytes(), 20);
  EXPECT_EQ(live(18, Category::activations), 20);
  message.reset();
  EXPECT_EQ(account(18).live_bytes(), 0);
}

TEST_F(Meter, TooMuchIsOutOfMemory) { EXPECT_THROW(at::empty({int64_t{1} << 60}, at::kFloat), c10::Error); }

/// Otherwise the system would kill the process when the memory is used.
TEST_F(Meter, WhatTheMachineLacksIsOutOfMemory) {
  EXPECT_GT(detail::machine_memory(), 1 << 30);
  const int64_t much = int64_t{1} << 50;
  const auto text = test::text_of<c10::OutOfMemoryError>([&] { at::empty({much}, at::kByte); });
  EXPECT_TRUE(text.starts_with("memory: " + std::to_string(much) + " bytes more for ")) << text;
  EXPECT_TRUE(text.ends_with(" bytes that this machine has free: make the job smaller, or use more machines")) << text;
  EXPECT_NO_THROW(at::empty({1000}, at::kByte)) << "what was refused is not counted";
}

TEST(MemoryTable, OneLineARank) {
  const std::array<CategoryBytes, 2> ranks = {{{1024, 0, 0, 2048, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 512}}};
  EXPECT_EQ(memory_table(ranks),
            "rank  parameters  gradients  optimizer  activations  buffers  communication  other     peak\n"
            "0        1.0 KiB        0 B        0 B      2.0 KiB      0 B            0 B    0 B  3.0 KiB\n"
            "1            0 B        0 B        0 B          0 B      0 B            0 B  512 B    512 B\n");
}

}  // namespace
}  // namespace tandem::memory
