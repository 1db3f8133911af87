#include "tandem/data/image/turn.h"

#include <gtest/gtest.h>

#include "tests/data/image_files.h"
#include "tests/support/files.h"

namespace tandem::data {
namespace {

Turn turn(const std::string& exif) { return exif_turn(test::bytes_of(exif)); }

const Turn kQuarter = {.transposed = true, .rows_mirrored = true};

TEST(ExifTurn, ReadsBothByteOrders) {
  for (const bool is_big_endian : {true, false}) {
    EXPECT_EQ(turn(test::exif_of(1, is_big_endian)), Turn());
    EXPECT_EQ(turn(test::exif_of(6, is_big_endian)), kQuarter);
    EXPECT_EQ(turn(test::exif_of(8, is_big_endian)), (Turn{.transposed = true, .columns_mirrored = true}));
  }
}

TEST(ExifTurn, OtherValuesAskForNone) {
  for (const int value : {0, 9, 256, 65535}) EXPECT_EQ(turn(test::exif_of(value)), Turn()) << value;
}

TEST(ExifTurn, WholeNumbersOfEveryTypeCount) {
  auto exif = test::exif_of(0);
  exif[13] = 4;  // 4 bytes
  exif[21] = 6;
  EXPECT_EQ(turn(exif), kQuarter);
  exif[13] = 1;  // one byte
  exif[18] = 6;
  EXPECT_EQ(turn(exif), kQuarter);
  exif[13] = 2;  // text
  EXPECT_EQ(turn(exif), Turn());
}

TEST(ExifTurn, DamagedDataAskForNone) {
  const auto whole = test::exif_of(6);
  EXPECT_EQ(turn(""), Turn());
  for (size_t length = 0; length < 20; ++length) EXPECT_EQ(turn(whole.substr(0, length)), Turn()) << length;
  for (const auto& [at, byte] : {std::pair(0, 'I'), {3, 'x'}, {4, '\x7f'}, {7, '\x20'}, {17, 2}}) {
    auto exif = whole;
    exif[static_cast<size_t>(at)] = static_cast<char>(byte);
    EXPECT_EQ(turn(exif), Turn()) << at;
  }
  auto many = whole;
  many[8] = many[9] = '\xff';  // entries that are not there
  EXPECT_EQ(turn(many), kQuarter);
  many[11] = '\x13';
  EXPECT_EQ(turn(many), Turn());
}

}  // namespace
}  // namespace tandem::data
