#include "tandem/kernels/square_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tandem::kernels {
namespace {

template <class T>
SquareSum sum_of(const std::vector<T>& numbers) {
  SquareSum sum;
  sum.add(numbers.data(), static_cast<int64_t>(numbers.size()));
  return sum;
}

/// Of many magnitudes, some of them subnormal.
template <class T>
std::vector<T> numbers(int64_t count) {
  std::vector<T> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto exponent = static_cast<int>(i % 180) - 150;
    numbers[i] = std::ldexp(static_cast<T>(std::sin(static_cast<double>(i) * 1.3)), exponent);
  }
  return numbers;
}

template <class T>
void expect_the_same_however_it_is_cut() {
  auto all = numbers<T>(30'011);
  const auto whole = sum_of(all).value();
  std::ranges::reverse(all);
  std::ranges::rotate(all, all.begin() + 777);
  for (const int64_t part : {1, 17, 4096, 65'536}) {
    SquareSum sum;
    for (int64_t begin = 0; begin < 30'011; begin += part) {
      SquareSum own;
      own.add(all.data() + begin, std::min(part, 30'011 - begin));
      for (size_t i = 0; i < sum.digits.size(); ++i) sum.digits[i] += own.digits[i];
    }
    EXPECT_EQ(sum.value(), whole) << part;
  }
  long double near = 0;
  for (const T x : all) near += static_cast<long double>(x) * static_cast<long double>(x);
  EXPECT_NEAR(whole / static_cast<double>(near), 1, 1e-14);
}

TEST(SquareSum, IsTheSameHoweverItIsCut) {
  expect_the_same_however_it_is_cut<float>();
  expect_the_same_however_it_is_cut<double>();
}

TEST(SquareSum, RoundsNothingButItsValue) {
  EXPECT_EQ(sum_of<float>({}).value(), 0);
  EXPECT_EQ(sum_of<float>({3, -4, 0, -0.0F}).value(), 25);
  EXPECT_EQ(sum_of<double>({1e-200, 3}).value(), 9);
  EXPECT_EQ(sum_of<double>({1e-120}).value(), 1e-120 * 1e-120);
  // A half of the last digit is a tie; the smallest number above it is none.
  const double half = std::ldexp(1.0, -27);  // squared: 2^-54, a quarter of the distance to the next double
  const auto above = [&](std::vector<double> more) {
    more.insert(more.begin(), {1, half, half});
    return sum_of(more).value();
  };
  EXPECT_EQ(above({}), 1);
  EXPECT_EQ(above({5e-324}), std::nextafter(1.0, 2.0));
  EXPECT_EQ(above({half, half}), std::nextafter(1.0, 2.0));
}

TEST(SquareSum, HoldsTheLargestAndTheSmallestNumbers) {
  const auto largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::denorm_min();
  const auto square = [](double x) { return x * x; };
  EXPECT_EQ(sum_of<float>({largest}).value(), square(largest));
  EXPECT_EQ(sum_of<float>({smallest, smallest}).value(), 2 * square(smallest));
  EXPECT_EQ(sum_of<double>({std::numeric_limits<double>::max()}).value(), std::numeric_limits<double>::infinity());
  const std::vector<float> many(200'000, largest);
  EXPECT_EQ(sum_of(many).value(), 200'000 * square(largest));
}

TEST(SquareSum, OfWhatIsNotFiniteIsNaN) {
  for (const float x : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(sum_of<float>({1, x, 2}).value()));
    EXPECT_TRUE(std::isnan(sum_of<double>({1, x, 2}).value()));
  }
}

}  // namespace
}  // namespace tandem::kernels
