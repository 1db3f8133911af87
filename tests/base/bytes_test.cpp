#include "tandem/base/bytes.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Bytes, UnitsArePowersOf1024) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(6452), "6.3 K");
  EXPECT_EQ(format_bytes(170917888), "163.0 M");
  EXPECT_EQ(format_bytes(2560000000), "2.38 G");
}

TEST(Bytes, CountsHaveSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace tandem
