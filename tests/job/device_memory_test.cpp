#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/job/ranks.h"
#include "tandem/memory/device_meter.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/strategy.h"
#include "tests/device/test_device.h"
#include "tests/job/job_of.h"
#include "tests/job/step_peaks.h"

// The books of a device's memory, whose allocator tells them.
namespace tandem::job {
namespace {

class DeviceMemory : public testing::Test {
 protected:
  void SetUp() override {
    memory::install_meter();
    test::install_test_device();
  }
  void TearDown() override { memory::meter_memory_of(at::kCPU); }

  /// Within 1 %.
  static void expect_predicted(const std::vector<std::string>& words) {
    SCOPED_TRACE(testing::PrintToString(words));
    const c10::Device shared(at::kPrivateUse1, 0);
    for (const auto& [predicted, measured] : peaks_of(words, test::Patterns(), {.device = shared})) {
      EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(measured), 0.01 * static_cast<double>(measured));
      EXPECT_GT(measured, 0);
    }
  }
};

TEST_F(DeviceMemory, IsCountedByCategoryAndBlock) {
  memory::meter_memory_of(at::kPrivateUse1);
  const RankScope rank(7);
  const CategoryScope category(Category::parameters);
  const BlockScope block(block_number("layer1"));
  const auto here = at::zeros({1000});
  const auto x = at::empty({3, 5}, at::device(at::kPrivateUse1).dtype(at::kDouble));
  auto account = memory::account(7);
  EXPECT_EQ(account.live_bytes(), 120);
  EXPECT_EQ(account.live[static_cast<size_t>(Category::parameters)], 120);
  ASSERT_EQ(account.blocks.size(), 1U);
  EXPECT_EQ(block_name(account.blocks[0].block), "layer1");
  memory::tag(x, Category::gradients);
  EXPECT_EQ(memory::account(7).live[static_cast<size_t>(Category::gradients)], 120);
  {
    const memory::LimitScope limit(7, 200);
    EXPECT_THROW(at::empty({21}, x.options()), c10::OutOfMemoryError);
    at::empty({10}, x.options());
  }
  EXPECT_EQ(memory::account(7).peak_bytes(), 200);
}

TEST_F(DeviceMemory, TheLimitOfAGpuIsThatOfItsRanks) {
  auto job = job_of({"memory.limit=1M", "ranks=10"});
  EXPECT_EQ(limit_of(job, 9), 1 << 20);
  EXPECT_EQ(limit_of_gpu(job, 9), std::nullopt);
  job.parallel.device = at::kPrivateUse1;  // eight
  EXPECT_EQ(limit_of_gpu(job, 0), 2 << 20);
  EXPECT_EQ(limit_of_gpu(job, 9), 2 << 20);
  EXPECT_EQ(limit_of_gpu(job, 5), 1 << 20);
  EXPECT_EQ(limit_of_gpu(job_of({}), 0), std::nullopt);
}

TEST_F(DeviceMemory, OfOneRankIsPredicted) {
  for (const std::string model : {"mlp", "resnet_glyph"}) {
    for (const std::string more : {"head.parallel=sharded", "head.fused_update=true", "head.parallel=naive",
                                   "recompute=all", "train.accumulate=2", "train.ema=0.9"}) {
      expect_predicted({"model=" + model, more, "embedding=24", "train.batch=13", "head.classes=301"});
    }
  }
}

TEST_F(DeviceMemory, OfEachStrategyIsPredicted) {
  for (const auto& strategy : parallel::strategies()) {
    if (strategy.is_one_process) continue;
    for (const std::string more : {"train.accumulate=1", "embedding=900"}) {
      expect_predicted({"parallel=" + std::string(strategy.name), "model=mlp", "embedding=24", more,
                        "local_sgd.every=2", "diloco.every=2", "train.batch=23", "head.classes=301", "ranks=3"});
    }
  }
}

}  // namespace
}  // namespace tandem::job
