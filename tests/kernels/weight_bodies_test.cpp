#include "tandem/kernels/grid/weight_bodies.h"

#include <gtest/gtest.h>

#include <vector>

#include "tandem/kernels/grid/score_grid.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

template <class T, class S>
void expect_along(HostGrid grid, int64_t rows, int64_t columns) {
  const auto gradient = drawn_as<S>(1, rows * columns, 1);
  const auto weight = drawn_as<T>(2, rows * columns, 1), along = drawn_as<T>(3, rows, 1);
  std::vector<T> out(rows * columns);
  add_along_on(grid, gradient.data(), weight.data(), along.data(), rows, columns, out.data());
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double wanted = double{widened(gradient[i])} + double{along[i / columns]} * weight[i];
    EXPECT_NEAR(out[i], wanted, 2 * kUnit<T>);
  }
}

TEST(WeightBodies, AddMultiplesOfTheirRows) {
  for (const int threads : kGridThreads) {
    for (const int64_t columns : kOddSizes) {
      expect_along<float, float>(HostGrid(threads), 5, columns);
      expect_along<float, uint16_t>(HostGrid(threads), 5, columns);
      expect_along<double, double>(HostGrid(threads), 5, columns);
    }
  }
}

TEST(WeightBodies, AddBfloat16) {
  for (const int threads : kGridThreads) {
    for (const int64_t count : kOddSizes) {
      HostGrid grid(threads);
      const auto values = drawn_as<uint16_t>(1, count, 1);
      const auto before = drawn_as<float>(2, count, 1);
      auto sum = before, cpu = before;
      add_rounded_on(grid, values.data(), count, sum.data());
      add_rounded(values.data(), count, cpu.data());
      EXPECT_EQ(sum, cpu);
    }
  }
}

template <class T>
void expect_lengths(HostGrid grid, int64_t columns) {
  auto values = drawn_as<T>(1, 5 * columns, 1);
  std::fill_n(values.begin(), columns, T(0));
  std::vector<T> inverse(5);
  inverse_lengths_on(grid, values.data(), 5, columns, nullptr, inverse.data());
  EXPECT_EQ(inverse[0], T(1e12));
  for (int64_t r = 1; r < 5 && columns > 0; ++r) {
    double square = 0;
    for (int64_t c = 0; c < columns; ++c) square += double{values[r * columns + c]} * values[r * columns + c];
    EXPECT_NEAR(inverse[r] * std::sqrt(square), 1, 8 * kUnit<T>);
  }
}

TEST(WeightBodies, InverseLengthsAreFiniteForARowOfZeros) {
  for (const int threads : kGridThreads) {
    for (const int64_t columns : kOddSizes) {
      expect_lengths<float>(HostGrid(threads), columns);
      expect_lengths<double>(HostGrid(threads), columns);
    }
  }
}

TEST(WeightBodies, RoundedRowsAreThoseOfTheCpu) {
  for (const int threads : kGridThreads) {
    for (const int64_t columns : kOddSizes) {
      HostGrid grid(threads);
      const auto values = drawn_as<float>(1, 5 * columns, 1);
      std::vector<uint16_t> rounded(values.size()), cpu(values.size());
      std::vector<float> inverse(5), cpu_inverse(5);
      inverse_lengths_on(grid, values.data(), 5, columns, rounded.data(), inverse.data());
      round_rows(values.data(), 5, columns, cpu.data(), cpu_inverse.data());
      EXPECT_EQ(rounded, cpu);
      for (int64_t r = 0; r < 5; ++r) EXPECT_NEAR(inverse[r] / cpu_inverse[r], 1, 8 * kUnit<float>);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
