#include "tests/search/planted.h"

#include <gtest/gtest.h>

// One seed of each; bench/planted runs several.
namespace tandem::search::planted {
namespace {

TEST(Planted, AnOperationThatKnowsTheLabelComesFirst) {
  for (const std::string_view operation : {"dil_conv_5x5", "avg_pool_3x3", "skip_connect"}) {
    const auto outcome = search_planted(operation, 1);
    EXPECT_EQ(outcome.first(), operation);
    EXPECT_GT(outcome.margin(operation), 0.15) << operation;
  }
  EXPECT_EQ(search_planted("max_pool_3x3", 1, {.gain = 2}).first(), "max_pool_3x3");
}

TEST(Planted, TheSecondOrderLeavesTheShortcut) {
  EXPECT_EQ(judge_order(1, 2).first(), "skip_connect");
  EXPECT_EQ(judge_order(1, 1).first(), "max_pool_3x3");
  EXPECT_EQ(judge_order(1, 2, Product::multiplied).first(), "max_pool_3x3");
}

}  // namespace
}  // namespace tandem::search::planted
