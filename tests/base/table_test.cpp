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

TEST(Table, RejectsARaggedRow) { EXPECT_THROW(Table({"a", "b"}).add_row({"1"}), c10::ValueError); }

}  // namespace
}  // namespace tandem
