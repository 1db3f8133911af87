#include "tandem/base/table.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Table, AlignsColumns) {
  Table table({"rank", "peak"});
  table.add_row({"0", "211.7 M"});
  table.add_row({"10", "9 K"});
  EXPECT_EQ(table.str(), "rank     peak\n0     211.7 M\n10        9 K\n");
}

TEST(Table, AlignsByColumnsOfTheTerminal) {
  Table table({"class", "right"});
  table.add_row({"étoile", "9"});
  table.add_row({"猫", "10"});
  table.add_row({"star", "8"});
  EXPECT_EQ(table.str(), "class   right\nétoile      9\n猫         10\nstar        8\n");
}

TEST(Table, ControlCharactersBreakNoRow) {
  Table table({"image", "class"});
  table.add_row({"a\nb", "x\x1b"});
  EXPECT_EQ(table.str(), "image   class\na\\x0ab  x\\x1b\n");
}

TEST(Table, RejectsARaggedRow) { EXPECT_THROW(Table({"a", "b"}).add_row({"1"}), c10::ValueError); }

}  // namespace
}  // namespace tandem
