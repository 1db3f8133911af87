#include <gtest/gtest.h>

#include "tests/job/device_job.h"

namespace tandem::job {
namespace {

/// On a device without kernels a job runs by operators. On the CPU both forms are at hand.
TEST(Operators, AWholeJobHasTheLossesOfTheKernels) {
  for (auto words : device_cases()) {
    SCOPED_TRACE(::testing::PrintToString(words));
    words.push_back("train.precision=float64");
    const auto kernels = train_on({}, words), operators = train_on({.operators = true}, words);
    ASSERT_EQ(kernels.losses.size(), 8U);
    for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(kernels.losses[i], operators.losses[i], 1e-10) << "step " << i;
    EXPECT_NE(kernels.losses.back(), kernels.losses.front());
  }
}

}  // namespace
}  // namespace tandem::job
