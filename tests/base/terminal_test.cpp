#include "tandem/base/terminal.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Wrapped, BreaksAtSpacesOnly) {
  EXPECT_EQ(wrapped("one two three four", 9, 0), "one two\nthree\nfour\n");
  EXPECT_EQ(wrapped("one two three four", 13, 2), "  one two\n  three four\n");
  EXPECT_EQ(wrapped("a incomprehensible b", 6, 1), " a\n incomprehensible\n b\n");
  EXPECT_EQ(wrapped("  a   b ", 80, 0), "a b\n");
  EXPECT_EQ(wrapped("", 80, 4), "\n");
}

TEST(Wrapped, CountsCharactersNotBytes) { EXPECT_EQ(wrapped("äöü äöü", 7, 0), "äöü äöü\n"); }

TEST(DisplayWidth, WideCharactersTakeTwoColumnsAndAccentsNone) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("star"), 4u);
  EXPECT_EQ(display_width("étoile"), 6u);
  EXPECT_EQ(display_width("e\u0301toile"), 6u);
  EXPECT_EQ(display_width("猫と犬"), 6u);
  EXPECT_EQ(display_width("한글"), 4u);
  EXPECT_EQ(display_width("Ａ"), 2u);
  EXPECT_EQ(display_width("𠮷"), 2u);
  EXPECT_EQ(display_width("🐈"), 2u);
  EXPECT_EQ(display_width("█▏"), 2u);
  EXPECT_EQ(display_width("\xff\xff"), 2u);  // no UTF-8: a column each
}

}  // namespace
}  // namespace tandem
