#include "tandem/base/format.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Format, UnitsOfBytesArePowersOf1024) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(6452), "6.3 KiB");
  EXPECT_EQ(format_bytes(170917888), "163.0 MiB");
  EXPECT_EQ(format_bytes(2560000000), "2.38 GiB");
}

TEST(Format, BytesAreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("512"), 512);
  EXPECT_EQ(parse_bytes("64K"), 65536);
  EXPECT_EQ(parse_bytes("1.5 G"), 1610612736);
  EXPECT_EQ(parse_bytes("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(parse_bytes("3m"), 3145728);
  EXPECT_EQ(parse_bytes("8191P"), int64_t{8191} << 50);
  EXPECT_EQ(parse_bytes("8192P"), std::nullopt);
  for (const auto* text : {"", "x", "-1", "1X", "1GG", "nan", "inf", "1e30", "9000000P"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(Format, LabelsAreShort) {
  EXPECT_EQ(format_bytes_short(0), "0 B");
  EXPECT_EQ(format_bytes_short(512.0 * 1024), "512 KiB");
  EXPECT_EQ(format_bytes_short(1.5 * (1 << 30)), "1.5 GiB");
  EXPECT_EQ(format_bytes_short(202.8 * (1 << 20)), "203 MiB");
}

TEST(Format, PercentHasTwoDecimals) {
  EXPECT_EQ(format_percent(0.98765), "98.77 %");
  EXPECT_EQ(format_percent(0), "0.00 %");
  EXPECT_EQ(format_percent(1), "100.00 %");
}

TEST(Format, CountsHaveSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace tandem
