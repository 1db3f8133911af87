#include "tandem/cli/run/loss_check.h"

#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

train::Scores scored(double top1) { return {{{"top1", "top-1", top1}}, 100}; }

TEST(LossCheck, ALossThatStaysAboveItsBeginningIsTold) {
  EXPECT_EQ(stuck_loss({{1, 10.25}, {20, 30}, {40, 12}, {46, 12}, {60, 13}}, {.classes = 50}, scored(0.02)),
            "loss has not fallen: 10.2 at step 1, 12.5 on average of steps 46..60: lower train.lr, train longer");
}

TEST(LossCheck, ALossAtChanceIsTold) {
  const Curve losses = {{1, 12}, {40, 4}, {50, 4.0}};
  EXPECT_EQ(stuck_loss(losses, {.classes = 50, .is_plain = true}, std::nullopt),
            "loss has not fallen: 12 at step 1, 4 on average of steps 38..50 (chance is 3.91): lower train.lr, train "
            "longer");
  EXPECT_EQ(stuck_loss(losses, {.classes = 50}, std::nullopt), "");
  EXPECT_EQ(stuck_loss(losses, {.classes = 60, .is_plain = true}, std::nullopt), "");  // chance is 4.09
}

TEST(LossCheck, ALossThatStaysWhileTheTestIsGuessedIsTold) {
  const Curve losses = {{1, 8.4}, {20, 7.5}, {40, 7.1}, {45, 7.1}, {50, 7.0}, {60, 7.0}};
  EXPECT_EQ(stuck_loss(losses, {.classes = 50}, scored(0.02)),
            "loss no longer falls: 7.1 on average of steps 31..45, 7 on average of steps 46..60, and the test is no "
            "better than chance: lower train.lr, train longer");
  EXPECT_EQ(stuck_loss(losses, {.classes = 50}, scored(0.07)), "");
  EXPECT_EQ(stuck_loss(losses, {.classes = 50}, std::nullopt), "");
  const Curve falling = {{1, 8.4}, {20, 7.5}, {40, 7.1}, {45, 7.1}, {50, 6.8}, {60, 6.9}};
  EXPECT_EQ(stuck_loss(falling, {.classes = 50}, scored(0.02)), "");
}

TEST(LossCheck, NothingIsToldOfARunThatLearns) {
  EXPECT_EQ(stuck_loss({{1, 10}, {20, 30}, {46, 9}, {60, 10}}, {.classes = 50}, scored(0.02)), "");
  // The loss rises from its first value and falls again: the test says whether that was for nothing.
  const Curve spike = {{1, 10}, {20, 30}, {60, 11}};
  EXPECT_NE(stuck_loss(spike, {.classes = 50}, scored(0.06)), "");
  EXPECT_EQ(stuck_loss(spike, {.classes = 50}, scored(0.07)), "");  // 2 by chance, 6.2 with three deviations
}

TEST(LossCheck, NothingIsToldTooEarlyOrWithoutTheBeginning) {
  EXPECT_EQ(stuck_loss({}, {.classes = 50}, std::nullopt), "");
  EXPECT_EQ(stuck_loss({{1, 10}, {49, 20}}, {.classes = 50}, std::nullopt), "");
  EXPECT_EQ(stuck_loss({{80, 10}, {100, 20}}, {.classes = 50}, std::nullopt), "");
}

}  // namespace
}  // namespace tandem::cli
