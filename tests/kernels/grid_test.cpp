#include "tandem/kernels/grid/grid.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

/// Sums that depend on their order, and whether each pair of indices came once.
struct Once {
  int64_t columns;
  int* times;

  float operator()(int64_t row, int64_t column) const {
    ++times[row * columns + column];
    return 1 / static_cast<float>(1 + row * 7 + column * 3);
  }
};

struct Store {
  float* to;
  void operator()(int64_t index, float value) const { to[index] = value; }
};

struct Sums {
  std::vector<float> of_rows, of_columns;
};

Sums sums_on(int threads, int64_t rows, int64_t columns) {
  HostGrid grid(threads);
  std::vector<int> times(rows * columns);
  Sums sums{std::vector<float>(rows, -1), std::vector<float>(columns, -1)};
  Scratch scratch(column_scratch<float>(rows, columns));
  const Once value{columns, times.data()};
  grid.reduce_rows(rows, columns, value, Add{}, 0.0F, Store{sums.of_rows.data()});
  grid.reduce_columns(rows, columns, value, Add{}, 0.0F, Store{sums.of_columns.data()}, scratch.get());
  for (const int count : times) EXPECT_EQ(count, 2);
  return sums;
}

void expect_sums(int64_t rows, int64_t columns) {
  const auto sums = sums_on(1, rows, columns);
  std::vector<double> of_rows(rows), of_columns(columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const double value = 1 / static_cast<double>(1 + r * 7 + c * 3);
      of_rows[r] += value;
      of_columns[c] += value;
    }
  }
  for (int64_t r = 0; r < rows; ++r) EXPECT_NEAR(sums.of_rows[r], of_rows[r], 1e-6 * of_rows[r]);
  for (int64_t c = 0; c < columns; ++c) EXPECT_NEAR(sums.of_columns[c], of_columns[c], 1e-6 * of_columns[c]);
  const auto shared = sums_on(3, rows, columns);
  EXPECT_EQ(shared.of_rows, sums.of_rows) << rows << " rows, " << columns << " columns";
  EXPECT_EQ(shared.of_columns, sums.of_columns) << rows << " rows, " << columns << " columns";
}

TEST(Grid, ReducesEveryPairOnceInOneOrder) {
  for (const int64_t rows : kOddSizes) {
    for (const int64_t columns : kOddSizes) expect_sums(rows, columns);
  }
  expect_sums(5003, 3);
  expect_sums(5003, 37);
}

TEST(Grid, ColumnsOfManyRowsAreReducedInChunksThatCoverThem) {
  for (const int64_t rows : {0, 1, 511, 512, 1024, 5003, 1 << 20}) {
    for (const int64_t columns : {1, 4, 5, 32, 33, 100000}) {
      const ColumnPlan plan(rows, columns);
      EXPECT_EQ(plan.width * plan.lanes, ColumnPlan::kThreads);
      EXPECT_GE(plan.tiles * plan.width, columns);
      EXPECT_GE(plan.chunks * plan.rows_a_chunk, rows);
      EXPECT_EQ(column_scratch<double>(rows, columns), plan.chunks == 1 ? 0 : plan.chunks * columns * 8);
    }
  }
  for (int64_t rows = 0; rows < 20000; rows += 7) {  // scratch for many rows is enough for fewer
    EXPECT_LE(column_scratch<double>(rows, 37), column_scratch<double>(rows + 7, 37));
  }
  EXPECT_EQ(ColumnPlan(5003, 3).chunks, 9);
  EXPECT_EQ(ColumnPlan(1 << 20, 3).chunks, 1024);
}

TEST(Grid, AReductionOfNothingIsTheInitialValue) {
  for (const int threads : kGridThreads) {
    const auto none = sums_on(threads, 0, 3), empty = sums_on(threads, 3, 0);
    EXPECT_EQ(none.of_columns, std::vector<float>(3));
    EXPECT_EQ(empty.of_rows, std::vector<float>(3));
  }
}

TEST(Bodies, Bfloat16IsRoundedToTheNearestEven) {
  const auto rounded = [](float value) { return widened(stored_as<uint16_t>(value)); };
  EXPECT_EQ(rounded(1 + 0x1p-8F), 1);                       // a tie, to even
  EXPECT_EQ(rounded(1 + 0x3p-8F), 1 + 0x1p-6F);             // the next, upwards
  EXPECT_EQ(rounded(1 + 0x1p-8F + 0x1p-20F), 1 + 0x1p-7F);  // above a tie
  EXPECT_EQ(rounded(-0x1.FFp127F), -HUGE_VALF);
}

TEST(Bodies, Bfloat16KeepsEveryNaN) {
  for (const uint32_t bits : {0x7F800001U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU}) {
    float nan;
    memcpy(&nan, &bits, sizeof(nan));
    uint16_t half;
    round_to(nan, half);
    EXPECT_TRUE(std::isnan(widened(half))) << bits;
  }
}

TEST(Bodies, PacksReadAndWriteWhatExists) {
  for (const int64_t shift : {0, 1}) {  // aligned, and not
    for (int64_t left = 0; left <= 5; ++left) {
      alignas(16) float from[8] = {1, 2, 3, 4, 5, 6, 7, 8}, to[8] = {};
      const auto pack = load_pack<4>(from + shift, left);
      store_pack(pack, to + shift, left);
      for (int64_t k = 0; k < 4; ++k) {
        EXPECT_EQ(pack.at[k], k < left ? from[k + shift] : 0);
        EXPECT_EQ(to[k + shift], k < left ? from[k + shift] : 0);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
