#include "tandem/launch/stop_rule.h"

#include <gtest/gtest.h>

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;

StopRule::Clock::time_point at(milliseconds time) { return StopRule::Clock::time_point(std::chrono::hours(1) + time); }

TEST(StopRule, WhatAsksForASaveNeverEndsTheJob) {
  StopRule rule;
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGUSR1}) {
    for (const int ms : {0, 1, 499, 500, 60'000})
      EXPECT_FALSE(rule.ends_at_once(signal, at(milliseconds(ms)))) << signal;
  }
}

TEST(StopRule, ASecondInterruptEndsTheJobHalfASecondAfterTheFirst) {
  StopRule rule;
  EXPECT_FALSE(rule.ends_at_once(SIGTERM, at(milliseconds(0))));
  EXPECT_FALSE(rule.ends_at_once(SIGINT, at(milliseconds(2000))));
  EXPECT_FALSE(rule.ends_at_once(SIGINT, at(milliseconds(2001))));  // of a launcher that passes it on
  EXPECT_FALSE(rule.ends_at_once(SIGINT, at(milliseconds(2499))));
  EXPECT_FALSE(rule.ends_at_once(SIGTERM, at(milliseconds(3000))));
  EXPECT_TRUE(rule.ends_at_once(SIGINT, at(milliseconds(2500))));
  EXPECT_TRUE(rule.ends_at_once(SIGINT, at(milliseconds(9000))));
}

}  // namespace
}  // namespace tandem::launch
