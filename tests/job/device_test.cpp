#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "tandem/job/rank_memory.h"
#include "tandem/memory/keep_ways.h"
#include "tandem/memory/meter.h"
#include "tests/job/device_job.h"
#include "tests/support/files.h"
#include "tests/support/test_device.h"

namespace tandem::job {
namespace {

/// The device runs the operators of the CPU: the numbers are equal, not only close.
void expect_equal(int ranks, std::vector<std::string> words) {
  SCOPED_TRACE(::testing::PrintToString(words));
  test::install_test_device();
  words.push_back("train.precision=float64");
  const auto there = train_on({.type = at::kPrivateUse1, .ranks = ranks}, words);
  const auto here = train_on({.ranks = ranks, .operators = true}, words);
  ASSERT_EQ(there.losses.size(), 8U);
  EXPECT_EQ(there.losses, here.losses);
  EXPECT_EQ(there.weights_hash, here.weights_hash);
  ASSERT_EQ(there.scores.list.size(), here.scores.list.size());
  for (size_t i = 0; i < here.scores.list.size(); ++i)
    EXPECT_EQ(there.scores.list[i].value, here.scores.list[i].value) << here.scores.list[i].name;
}

TEST(Device, OfTheTestTellsOnTheHostAndOnMixtures) {
  test::install_test_device();
  const auto x = at::ones({3}, at::device(at::kPrivateUse1));
  EXPECT_DEATH(std::abs(*static_cast<const volatile float*>(x.const_data_ptr())), "");
  EXPECT_TRUE((x + at::ones({})).cpu().equal(at::full({3}, 2.0F)));
  EXPECT_THROW(x + at::ones({3}), c10::Error);
  EXPECT_THROW(at::cat({x, at::ones({3})}), c10::Error);
  EXPECT_THROW(x.index({at::ones({1}, at::kLong)}), c10::Error);
}

TEST(Device, AJobRunsWhereTheHostCannotRead) {
  for (const auto& words : device_cases()) expect_equal(1, words);
}

/// Losses and sums of gradients go through the host.
TEST(Device, ThreeRanksHaveADeviceEach) {
  for (const auto& words : device_cases()) expect_equal(3, words);
}

TEST(Device, ACheckpointGoesFromOneToTheOther) {
  test::install_test_device();
  const std::vector<std::string> words = {"model=resnet_glyph", "train.optimizer=adamw", "train.precision=float64"};
  const test::TemporaryFolder folder;
  const auto there = train_on({.type = at::kPrivateUse1, .ranks = 2, .folder = folder.path()}, words);
  const auto on = train_on({.ranks = 2, .operators = true, .folder = folder.path(), .resumes = true}, words);
  EXPECT_EQ(on.losses, std::vector(there.losses.begin() + 4, there.losses.end()));
  EXPECT_EQ(on.weights_hash, there.weights_hash);
  const auto back = train_on({.type = at::kPrivateUse1, .ranks = 2, .folder = folder.path(), .resumes = true}, words);
  EXPECT_EQ(back.weights_hash, there.weights_hash);
}

/// Before a run each block runs alone; the features of a batch are for the host.
TEST(Device, IsRehearsedAndEmbeds) {
  test::install_test_device();
  memory::install_meter();
  auto job = job_of({"model=resnet_glyph", "train.batch=20", "embedding=16"});
  job.parallel.device = job.head.options.device = c10::Device(at::kPrivateUse1, 0);
  const Patterns patterns;
  const auto shape = shape_of(job, patterns);
  const auto memory = rehearse_rank(job, shape, 0, {{shape.classes}}, {5, 100});
  EXPECT_GT(memory.peak().bytes, 0);
  const auto group = comm::make_single_group();
  data::Batch batch{.images = at::ones({3, 1, 8, 8})};
  const auto there = assemble(job, shape, *group).task->embed(batch);
  job.parallel.device = job.head.options.device = at::kCPU;
  EXPECT_TRUE(there.is_cpu());
  EXPECT_TRUE(there.allclose(assemble(job, shape, *group).task->embed(batch), 1e-4, 1e-6));
}

/// What backward needs waits in host memory, whose bytes the meter counts.
TEST(Device, ActivationsAreKeptInHostMemory) {
  test::install_test_device();
  memory::install_meter();
  constexpr int64_t kBytes = 64 * 64 * 4;
  const auto x = at::randn({64, 64}).to(at::kPrivateUse1).requires_grad_();
  const auto layers = [](const Tensor& v) { return (v.sigmoid() * v).exp(); };
  const auto gradient = [&](const Tensor& y) { return torch::autograd::grad({y.sum()}, {x})[0].cpu(); };
  const auto exact = gradient(layers(x));
  const memory::ProbeScope probe;
  auto y = memory::keep_as(memory::keep_way("offload"), layers, x);
  EXPECT_EQ(probe.account().live_bytes(), 3 * kBytes);  // x, its sigmoid, which two operations save, and y
  EXPECT_TRUE(gradient(y).equal(exact));
  for (const auto* name : {"bf16", "int8"}) {
    const auto& way = memory::keep_way(name);
    const auto here = x.detach().cpu().requires_grad_();
    const auto of_host = torch::autograd::grad({memory::keep_as(way, layers, here).sum()}, {here})[0];
    EXPECT_TRUE(gradient(memory::keep_as(way, layers, x)).equal(of_host)) << name;
  }
}

TEST(Device, OnlyADevicesBlocksMayBeOffloaded) {
  test::install_test_device();
  memory::install_meter();
  auto job = job_of({"model=resnet_glyph", "train.batch=20", "embedding=16", "recompute=lossy", "memory.budget=1G"});
  const auto last_way = [&] {
    return rehearse_stages(job, DataShape{50, {1, 32, 32}}, {50}, /*in_parts=*/true).front().at(1).keeps.back().name;
  };
  EXPECT_EQ(last_way(), "int8");
  job.parallel.device = job.head.options.device = c10::Device(at::kPrivateUse1, 0);
  EXPECT_EQ(last_way(), "offload");
}

}  // namespace
}  // namespace tandem::job
