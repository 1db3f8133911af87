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

TEST(Bytes, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("512"), 512);
  EXPECT_EQ(parse_bytes("64K"), 65536);
  EXPECT_EQ(parse_bytes("1.5 G"), 1610612736);
  EXPECT_EQ(parse_bytes("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(parse_bytes("3m"), 3145728);
  for (const auto* text : {"", "x", "-1", "1X", "1GG", "nan", "inf", "1e30", "9000000P"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(Bytes, CountsHaveSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace tandem
