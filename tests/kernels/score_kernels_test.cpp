#include "tandem/kernels/score_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tandem/base/rng.h"

#include "tests/kernels/every_cpu.h"

namespace tandem::kernels {
namespace {

class ScoreKernels : public EveryCpu {};
INSTANTIATE_TEST_SUITE_P(Cpus, ScoreKernels, testing::ValuesIn(cpu::available()), cpu_name);

std::vector<double> drawn(uint64_t seed, int64_t count) {
  CounterRng rng(1, seed, 0);
  std::vector<double> values(static_cast<size_t>(count));
  for (auto& value : values) value = rng.uniform(-2, 2);
  return values;
}

TEST_P(ScoreKernels, SumsOfBlocksAreThoseOfAllClasses) {
  constexpr int64_t kRows = 11, kColumns = 2 * kColumnUnit;
  auto products = drawn(1, kRows * kColumns);
  const auto factors = drawn(2, kRows);
  std::vector<double> maximum(kColumns, std::numeric_limits<double>::lowest()), sum(kColumns), total(kColumns);
  for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 4}, {4, 7}}) {
    add_block(Block<double, double>{products.data() + first * kColumns, factors.data() + first, rows, kColumns},
              RunningRows<double>{maximum.data(), sum.data(), total.data()});
  }
  for (int64_t c = 0; c < kColumns; ++c) {
    double exponentials = 0, scores = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      const double score = products[r * kColumns + c] * factors[r];
      exponentials += std::exp(score);
      scores += score;
    }
    EXPECT_NEAR(maximum[c] + std::log(sum[c]), std::log(exponentials), 1e-12);
    EXPECT_NEAR(total[c], scores, 1e-12);
  }
}

TEST_P(ScoreKernels, InverseLengthsAreFiniteForARowOfZeros) {
  constexpr int64_t kRows = 5, kColumns = 19;
  auto values = drawn(3, kRows * kColumns);
  std::fill_n(values.begin(), kColumns, 0.0);
  std::vector<double> inverse(kRows);
  inverse_lengths(values.data(), kRows, kColumns, inverse.data());
  EXPECT_EQ(inverse[0], 1e12);
  for (int64_t r = 1; r < kRows; ++r) {
    double square = 0;
    for (int64_t c = 0; c < kColumns; ++c) square += values[r * kColumns + c] * values[r * kColumns + c];
    EXPECT_NEAR(inverse[r], 1 / std::sqrt(square), 1e-12);
  }
}

TEST_P(ScoreKernels, ColumnsArePaddedUpwards) {
  EXPECT_EQ(padded(1), kColumnUnit);
  EXPECT_EQ(padded(kColumnUnit), kColumnUnit);
  EXPECT_EQ(padded(kColumnUnit + 1), 2 * kColumnUnit);
}

}  // namespace
}  // namespace tandem::kernels
