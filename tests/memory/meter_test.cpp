#include "tandem/memory/meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

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
  const Scope scope(Category::activations);
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
  const Scope outer(Category::parameters);
  const auto weight = at::empty({10}, at::kFloat);
  Tensor gradient;
  {
    const Scope inner(Category::gradients);
    gradient = at::empty({5}, at::kFloat);
  }
  const auto more = at::empty({1}, at::kFloat);
  EXPECT_EQ(live(4, Category::parameters), 44);
  EXPECT_EQ(live(4, Category::gradients), 20);
}

TEST_F(Meter, ThePeakRemembersItsCategories) {
  const RankScope rank(5);
  Scope scope(Category::activations);
  auto first = at::empty({100}, at::kFloat);
  {
    const Scope gradients(Category::gradients);
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
    const Scope scope(Category::buffers);
    tensor = at::empty({8}, at::kDouble);
  }).join();
  EXPECT_EQ(live(6, Category::buffers), 64);
  tensor.reset();
  EXPECT_EQ(live(6, Category::buffers), 0);
}

TEST_F(Meter, TagMovesAStorageOnce) {
  const RankScope rank(7);
  const Scope scope(Category::activations);
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
    const Scope scope(Category::activations);
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
  for (int i = 0; i < 63; ++i) open.push_back(std::make_unique<ProbeScope>());  // one is kept by what stays
  EXPECT_EQ(test::text_of([] { ProbeScope one_more; }),
            "memory meter: 64 probes are open or hold memory, wanted fewer");
  while (!open.empty()) open.pop_back();
}

TEST_F(Meter, AnOwnerIsHandedOn) {
  ProbeScope probe;
  const Scope scope(Category::gradients);
  const auto owner = current_owner();
  Tensor tensor;
  std::thread([&] {
    const OwnerScope own(owner);
    tensor = at::empty({8}, at::kDouble);
  }).join();
  EXPECT_EQ(probe.account().live[static_cast<int>(Category::gradients)], 64);
}

TEST_F(Meter, TooMuchIsOutOfMemory) { EXPECT_THROW(at::empty({int64_t{1} << 60}, at::kFloat), c10::Error); }

TEST(MemoryTable, OneLineARank) {
  const std::array<CategoryBytes, 2> ranks = {{{1024, 0, 0, 2048, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 512}}};
  EXPECT_EQ(memory_table(ranks),
            "rank  parameters  gradients  optimizer  activations  buffers  communication  other     peak\n"
            "0        1.0 KiB        0 B        0 B      2.0 KiB      0 B            0 B    0 B  3.0 KiB\n"
            "1            0 B        0 B        0 B          0 B      0 B            0 B  512 B    512 B\n");
}

}  // namespace
}  // namespace tandem::memory
