#include "tandem/kernels/grid/block_code_grid.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

/// All fractions of a scale, and those beside half a code.
std::vector<float> fractions(int64_t count) {
  std::vector<float> x(count);
  for (int64_t i = 0; i < count; ++i) {
    const float half = std::floor(static_cast<float>(i % 250)) / 2;
    x[i] = i % 256 == 0 ? 126 * (1 + static_cast<float>(i) * 1e-6F) : std::nextafter(half, i % 3 == 0 ? 0.0F : 200.0F);
    if (i % 5 == 0) x[i] = -x[i];
  }
  return x;
}

void expect_bits_of_the_cpu(const std::vector<float>& x) {
  const auto count = static_cast<int64_t>(x.size());
  std::vector<int8_t> codes(count), own_codes(count);
  std::vector<float> scales(code_blocks(count)), own_scales = scales, y(count), own(count);
  encode(x.data(), count, codes.data(), scales.data());
  decode(codes.data(), scales.data(), count, y.data());
  for (const int threads : kGridThreads) {
    HostGrid grid(threads);
    encode_on(grid, x.data(), count, own_codes.data(), own_scales.data());
    decode_on(grid, own_codes.data(), own_scales.data(), count, own.data());
    EXPECT_EQ(own_codes, codes);
    for (size_t i = 0; i < scales.size(); ++i) {
      EXPECT_EQ(std::isnan(own_scales[i]) ? -1 : own_scales[i], std::isnan(scales[i]) ? -1 : scales[i]) << i;
    }
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(std::isnan(own[i]) ? -1 : own[i], std::isnan(y[i]) ? -1 : y[i]) << i;
  }
}

TEST(BlockCodeBodies, GiveTheBitsOfTheCpu) {
  for (const int64_t count : kOddSizes) {
    expect_bits_of_the_cpu(fractions(count));
    expect_bits_of_the_cpu(drawn_as<float>(1, count, 1e-6));
  }
  expect_bits_of_the_cpu(fractions(256 * 40 + 77));
}

/// Of a scale of 1.
TEST(BlockCodeBodies, GiveTheBitsOfTheCpuForHalves) {
  std::vector<float> x;
  for (int i = 0; i <= 252; ++i) x.push_back(static_cast<float>(i % 2 == 0 ? i : -i) / 2);
  expect_bits_of_the_cpu(x);
}

TEST(BlockCodeBodies, GiveTheBitsOfTheCpuForOddNumbers) {
  constexpr float kMost = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::denorm_min();
  expect_bits_of_the_cpu({kMost, -kMost / 2, 0, 1});
  expect_bits_of_the_cpu({kLeast, -kLeast, 0, 17 * kLeast});
  expect_bits_of_the_cpu({0, -0.0F});
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    auto x = fractions(300);
    x[17] = bad;
    expect_bits_of_the_cpu(x);
  }
}

}  // namespace
}  // namespace tandem::kernels
