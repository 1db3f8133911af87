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

}  // namespace
}  // namespace tandem
