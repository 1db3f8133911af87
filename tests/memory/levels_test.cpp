#include "tandem/memory/levels.h"

#include <gtest/gtest.h>

namespace tandem::memory {
namespace {

constexpr int kHead = 7, kBody = 3;

CategoryBytes activations(int64_t bytes, int64_t parameters = 0) {
  CategoryBytes all{};
  all[static_cast<size_t>(Category::parameters)] = parameters;
  all[static_cast<size_t>(Category::activations)] = bytes;
  return all;
}

std::vector<int64_t> totals_of(const Levels& levels) {
  std::vector<int64_t> totals;
  for (const auto& level : levels) totals.push_back(total_of(level.bytes));
  return totals;
}

/// Two moments of one block, of which the second is the higher one only at large sizes.
Levels step(int64_t size) {
  return {{.bytes = activations(0, 100)},
          {Phase::forward, kBody, activations(50 + size, 100)},
          {Phase::forward, kBody, activations(10 * size, 100)}};
}

TEST(Levels, EachMomentIsExtendedByItself) {
  const std::vector<SizedLevels> points = {{1, step(1)}, {2, step(2)}, {4, step(4)}};
  EXPECT_EQ(totals_of(extended(points, 100)), (std::vector<int64_t>{100, 250, 1100}));
  EXPECT_EQ(highest_of(extended(points, 100)).bytes, activations(1000, 100));
  EXPECT_EQ(totals_of(extended(std::vector<SizedLevels>{{2, step(2)}}, 100)), totals_of(step(2)))
      << "nothing to extend";
}

TEST(Levels, TheSteeperSlopeCounts) {
  const auto at = [](int64_t size, int64_t bytes) {
    return SizedLevels{size, {{Phase::backward, kHead, activations(bytes)}}};
  };
  const std::vector<SizedLevels> bent = {at(1, 10), at(2, 20), at(3, 21)}, convex = {at(1, 10), at(2, 11), at(3, 21)};
  EXPECT_EQ(totals_of(extended(bent, 13)), std::vector<int64_t>{121});
  EXPECT_EQ(totals_of(extended(convex, 13)), std::vector<int64_t>{121});
}

TEST(Levels, StepsThatGoOtherwiseAreExtendedByTheirBlocks) {
  const Levels few = {{Phase::forward, kHead, activations(10)}},
               more = {{Phase::forward, kHead, activations(20)}, {Phase::forward, kHead, activations(15)}};
  const auto far = extended(std::vector<SizedLevels>{{1, few}, {2, more}}, 10);
  EXPECT_EQ(totals_of(far), (std::vector<int64_t>{100}));
}

TEST(Levels, AChangeOfTheHeadIsAddedWhereItIsHeld) {
  const Levels whole = {{.bytes = activations(0, 100)},
                        {Phase::forward, kBody, activations(40, 100)},
                        {Phase::forward, kHead, activations(45, 100)},
                        {Phase::backward, kBody, activations(60, 100)}};
  const auto alone = [](int64_t parameters, int64_t scores, int64_t gradient) {
    return Levels{{.bytes = activations(0, parameters)},
                  {Phase::forward, kHead, activations(scores, parameters)},
                  {Phase::optimizer, Level::kBegin, activations(gradient, parameters)}};
  };
  const auto changed = with_change(whole, kHead, alone(10, 5, 10), alone(30, 50, 30));
  EXPECT_EQ(totals_of(changed), (std::vector<int64_t>{120, 160, 210, 200}));
}

}  // namespace
}  // namespace tandem::memory
