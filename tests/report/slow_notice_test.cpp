#include "tandem/report/slow_notice.h"

#include <gtest/gtest.h>

#include <future>

namespace tandem::report {
namespace {

using std::chrono::milliseconds;

TEST(SlowNotice, TellsOfWorkThatLasts) {
  std::promise<std::string> told;
  const SlowNotice notice("plans memory", true, milliseconds(1),
                          [&](std::string_view line) { told.set_value(std::string(line)); });
  EXPECT_EQ(told.get_future().get(), "plans memory");  // the work lasts until it is told
}

TEST(SlowNotice, ShortWorkAndOtherRanksAreQuiet) {
  int lines = 0;
  const auto count = [&](std::string_view) { ++lines; };
  { const SlowNotice quick("x", true, std::chrono::hours(1), count); }
  { const SlowNotice other("x", false, milliseconds(0), count); }
  EXPECT_EQ(lines, 0);
}

}  // namespace
}  // namespace tandem::report
