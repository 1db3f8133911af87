#include "tandem/base/quote.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Printable, ControlCharactersAndBrokenUtf8AreEscaped) {
  EXPECT_EQ(printable("\x1b[31mred\a"), "\\x1b[31mred\\x07");
  EXPECT_EQ(printable("a\nb\tc\r\x7f"), "a\\x0ab\\x09c\\x0d\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // U+009B begins a sequence as ESC [ does
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");
  EXPECT_EQ(printable("\x9b\xff\xed\xa0\x80\xc0\x80"), "\\x9b\\xff\\xed\\xa0\\x80\\xc0\\x80");
}

TEST(Printable, TextPassesAsItIs) {
  for (const std::string text : {"", "plain 'text' \\ \"x\"", "汉字 · é × ▏ 🙂", "עברית", "100 %"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, LinesStayWhereTheyAreWanted) { EXPECT_EQ(printable_lines("a\x1b\nb\n"), "a\\x1b\nb\n"); }

TEST(Quote, IsBounded) {
  EXPECT_EQ(quote("a\x1b"), "'a\\x1b'");
  const auto text = quote(std::string(100'000, 'x'));
  EXPECT_EQ(text, "'" + std::string(120, 'x') + "...'");
  EXPECT_LT(quote(std::string(100'000, '\x1b')).size(), 130U);
}

TEST(PlainText, IsUtf8WithoutControlCharacters) {
  EXPECT_TRUE(is_plain_text("汉字 \\"));
  for (const std::string bad : {"\x1b", "\x7f", "a\n", "\xff", "\xc2\x9b", "\xed\xa0\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(is_plain_text(bad));
  }
  EXPECT_TRUE(is_utf8("a\n\x1b"));
  EXPECT_FALSE(is_utf8("\xc0\x80"));
}

}  // namespace
}  // namespace tandem
