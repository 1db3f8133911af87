#include "tandem/base/finite.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tandem/base/cpu.h"

namespace tandem {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class FiniteOnEveryCpu : public testing::TestWithParam<cpu::Target> {};
INSTANTIATE_TEST_SUITE_P(Cpus, FiniteOnEveryCpu, testing::ValuesIn(cpu::available()),
                         [](const auto& info) { return std::string(cpu::name(info.param)); });

TEST_P(FiniteOnEveryCpu, OneNumberAnywhereIsSeen) {
  const auto before = cpu::chosen();
  cpu::choose(GetParam());
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t size : {1, 3, 64, 65, 300'000}) {
      auto tensor = at::full({size}, -1.5, type);
      EXPECT_TRUE(all_finite(tensor)) << type << " " << size;
      for (const double bad : {kInfinity, -kInfinity, kNaN, -kNaN}) {
        for (const int64_t place : {int64_t{0}, size / 2, size - 1}) {
          tensor.select(0, place).fill_(bad);
          EXPECT_FALSE(all_finite(tensor)) << type << " " << size << " " << place << " " << bad;
          tensor.select(0, place).fill_(0);
        }
      }
    }
  }
  cpu::choose(before);
}

TEST(Finite, TheLargestAndTheSmallestNumbersAreFinite) {
  using Float = std::numeric_limits<float>;
  for (const float value : {Float::max(), -Float::max(), Float::denorm_min(), -0.f}) {
    EXPECT_TRUE(all_finite(at::full({3}, value, at::kFloat))) << value;
  }
  EXPECT_TRUE(all_finite(at::full({3}, std::numeric_limits<double>::max(), at::kDouble)));
  EXPECT_TRUE(all_finite(at::full({3}, 65504.0, at::kHalf)));
}

TEST(Finite, OnlyTheTensorsOwnNumbersCount) {
  const auto whole = at::zeros({6, 5});
  whole.select(1, 4).fill_(kNaN);
  EXPECT_TRUE(all_finite(whole.narrow(1, 0, 4)));  // with gaps
  EXPECT_FALSE(all_finite(whole.narrow(1, 1, 4)));
  EXPECT_FALSE(all_finite(whole.t()));  // dense, in another order
  EXPECT_TRUE(all_finite(at::full({4, 4}, int64_t{1} << 62, at::kLong)));
  EXPECT_TRUE(all_finite(at::empty({0, 3})));
}

TEST(Finite, OfSparseTensorsTheValuesCount) {
  const auto ids = at::tensor({1, 3}, at::kLong).unsqueeze(0);
  EXPECT_TRUE(all_finite(at::sparse_coo_tensor(ids, at::ones({2, 3}), {5, 3})));
  EXPECT_FALSE(all_finite(at::sparse_coo_tensor(ids, at::full({2, 3}, kInfinity), {5, 3})));
}

}  // namespace
}  // namespace tandem
