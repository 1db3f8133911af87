#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tandem/base/finite.h"

namespace tandem {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

TEST(FiniteOnAGpu, AFlagATensor) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU here";
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const double number : {kInf, -kInf, kNan}) {
      const auto on_gpu = at::device(at::kCUDA);
      std::vector<Tensor> tensors;
      for (const int64_t size : {1, 0, 7, 100003}) tensors.push_back(at::ones({size}, on_gpu.dtype(type)));
      tensors.emplace_back();
      tensors[3][99999] = number;
      const auto flags = at::zeros({5}, on_gpu.dtype(at::kDouble));
      note_finite(tensors, flags);
      EXPECT_TRUE(flags.cpu().equal(at::tensor({1, 1, 1, 0, 1}, at::kDouble))) << type << " " << number;
      EXPECT_FALSE(all_finite(tensors[3])) << type << " " << number;
      EXPECT_TRUE(all_finite(tensors[2]) && all_finite(tensors[1])) << type;
    }
  }
}

}  // namespace
}  // namespace tandem
