#include "tandem/kernels/block_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/every_cpu.h"

namespace tandem::kernels {
namespace {

class BlockCodes : public EveryCpu {};
INSTANTIATE_TEST_SUITE_P(Cpus, BlockCodes, testing::ValuesIn(cpu::available()), cpu_name);

std::vector<float> restored(const std::vector<float>& x) {
  const auto count = static_cast<int64_t>(x.size());
  std::vector<int8_t> codes(x.size());
  std::vector<float> scales(static_cast<size_t>(code_blocks(count))), y(x.size());
  encode(x.data(), count, codes.data(), scales.data());
  decode(codes.data(), scales.data(), count, y.data());
  return y;
}

/// Three blocks of other magnitudes, the last one short.
std::vector<float> numbers() {
  std::vector<float> x(600);
  for (size_t i = 0; i < x.size(); ++i) {
    const double size = std::pow(10.0, static_cast<double>(i / 256) * 6 - 6);
    x[i] = static_cast<float>(size * std::sin(static_cast<double>(i) * 1.7) * std::exp(-static_cast<double>(i % 19)));
  }
  return x;
}

TEST_P(BlockCodes, AreWithinHalfAScaleOfTheirBlock) {
  const auto x = numbers(), y = restored(x);
  for (size_t first = 0; first < x.size(); first += kCodeBlock) {
    float most = 0, error = 0;
    for (size_t i = first; i < std::min(x.size(), first + kCodeBlock); ++i) {
      most = std::max(most, std::abs(x[i]));
      error = std::max(error, std::abs(x[i] - y[i]));
    }
    EXPECT_LE(error, most / 252 * 1.00001F) << first;
    EXPECT_GT(error, most / 300) << first;  // the bound is tight
  }
}

TEST_P(BlockCodes, KeepSignsAndNothingButZeroBecomesZero) {
  auto x = numbers();
  x[5] = 0;
  x[300] = 1e-44F;
  const auto y = restored(x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i] < 0, y[i] < 0) << i;
    EXPECT_EQ(x[i] > 0, y[i] > 0) << i;
  }
}

TEST_P(BlockCodes, OfVeryLargeAndVerySmallNumbers) {
  const float most = std::numeric_limits<float>::max(), least = std::numeric_limits<float>::denorm_min();
  EXPECT_NEAR(restored({most, -most / 2})[0] / most, 1, 1e-6);
  EXPECT_GT(restored({least})[0], 0);
  EXPECT_LT(restored({least})[0], 1e-37F);
  EXPECT_EQ(restored({0, 0})[1], 0);
}

TEST_P(BlockCodes, ABlockWithoutAFiniteScaleIsNaN) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(300, 1.0F);
    x[17] = bad;
    const auto y = restored(x);
    for (size_t i = 0; i < 256; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
    for (size_t i = 256; i < x.size(); ++i) EXPECT_NEAR(y[i], 1, 1e-6) << i;
  }
}

/// All fractions of a scale, and those beside half a code.
TEST(BlockCodesOfAllCpus, AreEqualToTheBit) {
  std::vector<float> x(256 * 400 + 77);
  for (size_t i = 0; i < x.size(); ++i) {
    const float half = std::floor(static_cast<float>(i % 250)) / 2;
    x[i] = i % 256 == 0 ? 126 * (1 + static_cast<float>(i) * 1e-6F) : std::nextafter(half, i % 3 == 0 ? 0.0F : 200.0F);
    if (i % 5 == 0) x[i] = -x[i];
  }
  const auto count = static_cast<int64_t>(x.size());
  const auto before = cpu::chosen();
  std::vector<int8_t> first_codes;
  std::vector<float> first_scales, first_numbers;
  for (const auto target : cpu::available()) {
    cpu::choose(target);
    std::vector<int8_t> codes(x.size());
    std::vector<float> scales(static_cast<size_t>(code_blocks(count))), y(x.size());
    encode(x.data(), count, codes.data(), scales.data());
    decode(codes.data(), scales.data(), count, y.data());
    if (first_codes.empty()) first_codes = codes, first_scales = scales, first_numbers = y;
    EXPECT_EQ(codes, first_codes) << cpu::name(target);
    EXPECT_EQ(scales, first_scales) << cpu::name(target);
    EXPECT_EQ(y, first_numbers) << cpu::name(target);
  }
  cpu::choose(before);
}

}  // namespace
}  // namespace tandem::kernels
