#include "tandem/data/glyph/character_set.h"

#include <gtest/gtest.h>
#include <iconv.h>

#include <set>
#include <string>

namespace tandem::data {
namespace {

TEST(CharacterSet, TiersHaveTheirSizesAndShareNothing) {
  EXPECT_EQ(characters(Tier::gb2312).size(), 3755U);
  EXPECT_EQ(characters(Tier::uro).size(), 20902U - 3755U);
  EXPECT_EQ(characters(Tier::extension).size(), 6592U + 90U + 74672U);
  std::set<char32_t> all;
  for (const Tier tier : kTiers) {
    for (const char32_t c : characters(tier)) EXPECT_TRUE(all.insert(c).second) << character_name(c);
  }
}

TEST(CharacterSet, FirstTwoTiersAreTheUnicodeOneIdeographs) {
  std::set<char32_t> all;
  for (const Tier tier : {Tier::gb2312, Tier::uro}) {
    for (const char32_t c : characters(tier)) all.insert(c);
  }
  EXPECT_EQ(all.size(), 20902U);
  EXPECT_EQ(*all.begin(), 0x4E00U);
  EXPECT_EQ(*all.rbegin(), 0x9FA5U);
}

/// GB 2312 level 1 as the C library knows it: rows 16..55, columns 1..94 of EUC-CN; the last five places are empty.
std::u32string level1_of_iconv() {
  const iconv_t converter = iconv_open("UTF-32LE", "EUC-CN");
  if (converter == reinterpret_cast<iconv_t>(-1)) return {};
  std::u32string all;
  for (int row = 16; row <= 55; ++row) {
    for (int column = 1; column <= 94; ++column) {
      char in[] = {static_cast<char>(0xA0 + row), static_cast<char>(0xA0 + column)};
      char32_t out = 0;
      char *from = in, *to = reinterpret_cast<char*>(&out);
      size_t from_bytes = 2, to_bytes = 4;
      iconv(converter, nullptr, nullptr, nullptr, nullptr);
      if (iconv(converter, &from, &from_bytes, &to, &to_bytes) != static_cast<size_t>(-1)) all += out;
    }
  }
  iconv_close(converter);
  return all;
}

TEST(CharacterSet, Level1IsTheStandardsInItsOrder) {
  const auto wanted = level1_of_iconv();
  if (wanted.empty()) GTEST_SKIP() << "this C library cannot convert EUC-CN";
  const auto ours = characters(Tier::gb2312);
  EXPECT_EQ(std::u32string(ours.begin(), ours.end()), wanted);
}

TEST(CharacterSet, NamesShowTheCharacterAndItsCodePoint) {
  EXPECT_EQ(character_name(U'A'), "A U+0041");
  EXPECT_EQ(character_name(0xE9), "\u00E9 U+00E9");
  EXPECT_EQ(character_name(0x554A), "\u554A U+554A");
  EXPECT_EQ(character_name(0x20000), "\U00020000 U+20000");
}

}  // namespace
}  // namespace tandem::data
