#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tandem/base/device_kernels.h"
#include "tandem/base/rng.h"
#include "tandem/classifier/detail/score_passes.h"

namespace tandem::classifier::detail {
namespace {

Tensor normal(at::IntArrayRef sizes, int64_t stream, at::ScalarType type = at::kFloat) {
  auto values = at::empty(sizes, type);
  fill_normal_(values, 1.0, 5, stream);
  return values;
}

/// What `pass` gives by the kernel and by libtorch's operators.
template <class Pass>
auto both_ways(const Pass& pass) {
  const auto by_kernel = pass();
  leave_to_operators(Kernels::scores, true);
  const auto by_operators = pass();
  leave_to_operators(Kernels::scores, false);
  return std::pair(by_kernel, by_operators);
}

// More and fewer than a vector of 16, and one that leaves a rest.
constexpr int64_t kColumns[] = {1, 15, 16, 37, 64};

TEST(ScorePasses, RowsAreRoundedAsLibtorchRounds) {
  for (const int64_t columns : kColumns) {
    auto rows = normal({7, columns}, columns);
    rows[2].zero_();
    rows[3][0] = std::numeric_limits<float>::quiet_NaN();
    rows[4][0] = std::numeric_limits<float>::infinity();
    const auto [kernel, operators] = both_ways([&] {
      auto rounded = at::empty({7, columns}, at::kBFloat16), inverse = at::empty({7});
      round_rows(rows, rounded, inverse);
      return std::pair(rounded.to(at::kFloat), inverse);
    });
    EXPECT_TRUE(at::allclose(kernel.first, operators.first, 0, 0, true)) << columns;
    EXPECT_TRUE(at::allclose(kernel.second, operators.second, 1e-6, 0, true)) << columns;
  }
}

TEST(ScorePasses, AGradientIsWidenedWithTheWeightsShare) {
  for (const auto type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
    for (const int64_t columns : kColumns) {
      const auto gradient = normal({9, columns}, 1, wide).to(type), weight = normal({9, columns}, 2, wide),
                 along = normal({9}, 3, wide);
      const auto [kernel, operators] = both_ways([&] {
        auto out = at::empty({9, columns}, wide);
        add_along(gradient, weight, along, out);
        return out;
      });
      EXPECT_TRUE(at::allclose(kernel, operators, 1e-6, 1e-6)) << type << " " << columns;
    }
  }
}

TEST(ScorePasses, TheOutputMayBeTheGradient) {
  auto gradient = normal({5, 20}, 1);
  const auto weight = normal({5, 20}, 2), along = normal({5}, 3);
  const auto wanted = gradient + weight * along.unsqueeze(1);
  add_along(gradient, weight, along, gradient);
  EXPECT_TRUE(at::allclose(gradient, wanted, 1e-6, 1e-6));
}

TEST(ScorePasses, RoundedSumsAreAddedInFloat) {
  for (const int64_t columns : kColumns) {
    const auto values = normal({3, columns}, 1).to(at::kBFloat16), start = normal({3, columns}, 2);
    const auto [kernel, operators] = both_ways([&] {
      auto sum = start.clone();
      add_rounded(values, sum);
      return sum;
    });
    EXPECT_TRUE(kernel.equal(operators)) << columns;
  }
}

}  // namespace
}  // namespace tandem::classifier::detail
