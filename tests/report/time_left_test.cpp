#include "tandem/report/time_left.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::report {
namespace {

/// A training on a clock of its own.
class LeftTime : public testing::Test {
 protected:
  TimeLeft begin(TimeLeftOptions options) {
    options.clock = [this] { return now_; };
    return TimeLeft(options);
  }
  void steps(TimeLeft& left, int64_t first, int64_t last, double seconds) {
    for (int64_t step = first; step <= last; ++step) {
      now_ += seconds;
      left.step_ended(step);
    }
  }
  void test(TimeLeft& left, double seconds) {
    left.test_began();
    now_ += seconds / 2;
    left.test_began();  // as each batch tells
    now_ += seconds / 2;
    left.test_ended();
  }

  double now_ = 1000;
};

TEST_F(LeftTime, FollowsTheStepsButTheFirst) {
  auto left = begin({.steps = 100, .has_tests = false});
  EXPECT_EQ(left.seconds(), std::nullopt);
  EXPECT_EQ(left.text(), "");
  steps(left, 1, 1, 500);
  EXPECT_EQ(left.text(), "");
  steps(left, 2, 10, 2);
  EXPECT_DOUBLE_EQ(*left.seconds(), 180);
  EXPECT_EQ(left.text(), "3 m left");
  steps(left, 11, 100, 2);
  EXPECT_EQ(*left.seconds(), 0);
  EXPECT_EQ(left.text(), "");
}

TEST_F(LeftTime, OldStepsAreForgotten) {
  auto left = begin({.steps = 1000, .has_tests = false});
  steps(left, 1, 300, 9);
  steps(left, 301, 600, 1);
  EXPECT_DOUBLE_EQ(*left.seconds(), 400);
}

TEST_F(LeftTime, TestsToComeTakeAsLongAsTheLast) {
  auto left = begin({.steps = 35, .test_every = 10});
  steps(left, 1, 9, 1);
  EXPECT_DOUBLE_EQ(*left.seconds(), 26);  // nothing is known of tests
  steps(left, 10, 10, 1);
  test(left, 20);
  EXPECT_DOUBLE_EQ(*left.seconds(), 25 + 3 * 20);  // after 20, 30 and 35
  steps(left, 11, 19, 1);
  EXPECT_DOUBLE_EQ(*left.seconds(), 16 + 3 * 20);  // a step does not take longer after a test
  steps(left, 20, 20, 1);
  EXPECT_DOUBLE_EQ(*left.seconds(), 15 + 3 * 20);  // this test has not begun
  test(left, 8);
  EXPECT_DOUBLE_EQ(*left.seconds(), 15 + 2 * 8);
  steps(left, 21, 35, 1);
  EXPECT_DOUBLE_EQ(*left.seconds(), 8);
  test(left, 8);
  EXPECT_EQ(*left.seconds(), 0);
}

TEST_F(LeftTime, TheLastTestMayBeOneThatIsDue) {
  auto left = begin({.steps = 30, .test_every = 10});
  steps(left, 1, 10, 1);
  test(left, 5);
  EXPECT_DOUBLE_EQ(*left.seconds(), 20 + 2 * 5);
}

TEST_F(LeftTime, ATestAtTheEndOnlyIsOne) {
  auto left = begin({.steps = 30});
  steps(left, 1, 10, 1);
  test(left, 5);
  EXPECT_DOUBLE_EQ(*left.seconds(), 20 + 5);
}

TEST_F(LeftTime, AResumedRunCountsItsOwnSteps) {
  auto left = begin({.steps = 1000, .first = 900, .test_every = 50});
  EXPECT_EQ(left.seconds(), std::nullopt);
  now_ += 60;  // until its first step
  steps(left, 901, 911, 1);
  EXPECT_DOUBLE_EQ(*left.seconds(), 89);
  EXPECT_EQ(left.text(), "1 m left");
}

TEST(FormatDuration, HasTwoUnitsAtMost) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(59.6), "1 m");
  EXPECT_EQ(format_duration(89), "1 m");
  EXPECT_EQ(format_duration(180), "3 m");
  EXPECT_EQ(format_duration(3569), "59 m");
  EXPECT_EQ(format_duration(3571), "1 h 00 m");
  EXPECT_EQ(format_duration(7500), "2 h 05 m");
  EXPECT_EQ(format_duration(86399), "1 d 0 h");
  EXPECT_EQ(format_duration(3.2 * 86400), "3 d 5 h");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(-1), "?");
}

}  // namespace
}  // namespace tandem::report
