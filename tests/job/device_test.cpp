#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "tandem/job/rank_memory.h"
#include "tandem/memory/keep_ways.h"
#include "tandem/memory/meter.h"
#include "tests/device/test_device.h"
#include "tests/job/device_job.h"
#include "tests/support/files.h"

namespace tandem::job {
namespace {

using test::DelayedStreams;
using test::Delays;

/// While it lives, the devices do their work as late as the program lets them, and nothing may be noticed.
class Late {
 public:
  explicit Late(Delays delays) {
    test::install_test_device();
    DelayedStreams::get().choose(delays);
  }
  ~Late() {
    EXPECT_EQ(DelayedStreams::get().take_findings(), std::vector<std::string>());
    DelayedStreams::get().choose(Delays::none);
  }
};

void expect_close(const std::vector<double>& there, const std::vector<double>& here, double tolerance) {
  ASSERT_EQ(there.size(), here.size());
  for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i], tolerance * std::abs(here[i])) << i;
}

std::vector<double> values_of(const train::Scores& scores) {
  std::vector<double> values;
  for (const auto& score : scores.list) values.push_back(score.value);
  return values;
}

/// The device runs the operators of the CPU: without kernels the numbers are equal, not only close. Its kernels have
/// the arithmetic of a GPU.
void expect_equal(c10::Device device, const SharedCase& one, Delays delays = Delays::longest) {
  auto words = one.words;
  SCOPED_TRACE(::testing::PrintToString(words));
  const Late late(delays);
  words.push_back("train.precision=float64");
  const auto here = train_on({.ranks = one.ranks, .operators = true}, words);
  ASSERT_EQ(here.losses.size(), 8U);
  const auto there = train_on({.device = device, .ranks = one.ranks, .operators = true}, words);
  const double tolerance = one.is_exact ? 0 : 1e-12;
  expect_close(there.losses, here.losses, tolerance);
  expect_close(values_of(there.scores), values_of(here.scores), tolerance);
  if (one.is_exact) {
    EXPECT_EQ(there.weights_hash, here.weights_hash);
  }
  expect_close(train_on({.device = device, .ranks = one.ranks}, words).losses, here.losses, 1e-9);
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
  for (const auto& words : device_cases()) expect_equal(at::kPrivateUse1, {1, words});
}

TEST(Device, ThreeRanksHaveADeviceEach) {
  for (const auto& words : device_cases()) expect_equal(at::kPrivateUse1, {3, words});
}

TEST(Device, ThreeRanksShareADevice) {
  for (const auto& words : device_cases()) expect_equal({at::kPrivateUse1, 0}, {3, words});
}

TEST(Device, EachWayToShareTheWork) {
  for (const auto& one : shared_cases()) expect_equal({at::kPrivateUse1, 0}, one);
}

TEST(Device, SomeWaysToShareTheWorkWithRandomDelays) {
  const auto cases = shared_cases();
  for (size_t i = 0; i < cases.size(); i += 4) expect_equal({at::kPrivateUse1, 0}, cases[i], Delays::random);
}

/// The numbers depend on which weights are there in time: only what is noted counts.
TEST(Device, ServersWhoseRanksDoNotWait) {
  for (const auto* apart : {"ps.servers=0", "ps.servers=1"}) {
    for (const auto delays : {Delays::none, Delays::longest, Delays::random}) {
      SCOPED_TRACE(apart + std::to_string(static_cast<int>(delays)));
      const Late late(delays);
      const auto trained =
          train_on({.device = c10::Device(at::kPrivateUse1, 0), .ranks = 3},
                   {"model=mlp", "parallel=ps", "ps.mode=async", "ps.staleness=2", "head.parallel=replicated", apart});
      EXPECT_EQ(trained.losses.size(), 8U);
    }
  }
}

/// How often the host of each rank waits in a step that ends without a test.
double waits_of_a_step(int ranks, std::vector<std::string> words) {
  const Late late(Delays::none);
  words.push_back("eval.every=1000");
  const auto waits = [&](int steps) {
    const auto before = DelayedStreams::get().num_waits();
    train_on({.device = c10::Device(at::kPrivateUse1, 0), .ranks = ranks, .steps = steps}, words);
    return DelayedStreams::get().num_waits() - before;
  };
  words.push_back("ranks=" + std::to_string(ranks));
  return static_cast<double>(waits(16) - waits(8)) / 8 / job_of(words).parallel.ranks;
}

/// For the loss, the gradients' norm and what is not finite, all at once; what changes rows in backward asks first
/// whether the loss is finite, and what updates sampled rows whether a class is drawn twice.
TEST(Device, TheHostWaitsOnceAStep) {
  for (const auto& words : device_cases()) {
    const auto has = [&](const std::string& word) { return std::ranges::find(words, word) != words.end(); };
    const int more = has("head.fused_update=true") || has("head.sample=0.5") ? 1 : 0;
    EXPECT_EQ(waits_of_a_step(1, words), 1 + more) << ::testing::PrintToString(words);
  }
  for (const auto& one : shared_cases()) {
    EXPECT_EQ(waits_of_a_step(one.ranks, one.words), one.waits) << ::testing::PrintToString(one.words);
  }
}

/// By what is noted, or because the job ends otherwise.
bool is_found(test::Fault fault, int64_t at, const SharedCase& one) {
  test::install_test_device();
  auto& streams = DelayedStreams::get();
  streams.choose(Delays::longest);
  streams.plant(fault, at);
  bool has_ended_otherwise = false;
  try {
    train_on({.device = c10::Device(at::kPrivateUse1, 0), .ranks = one.ranks, .steps = 2}, one.words);
  } catch (const std::exception&) {
    has_ended_otherwise = true;
  }
  const bool is_noted = !streams.take_findings().empty();
  return has_ended_otherwise || is_noted;
}

TEST(Device, AFaultInAJobIsFound) {
  for (const SharedCase& one : {SharedCase{2, {"model=mlp"}}, SharedCase{2, {"model=mlp", "parallel=fsdp"}},
                                SharedCase{2, {"model=resnet_glyph", "mesh.pipeline=2", "train.accumulate=2"}}}) {
    SCOPED_TRACE(::testing::PrintToString(one.words));
    EXPECT_TRUE(is_found(test::Fault::missing_wait, -1, one));
    // Of single pieces of work some are without consequence, such as zeros that are added to. Here all are tried in
    // turn from the middle of the job on.
    is_found(test::Fault::none, 0, one);
    const auto middle = DelayedStreams::get().num_works() / 2;
    constexpr int64_t kPieces = 20;
    int64_t found = 0;
    for (int64_t at = middle; at < middle + kPieces; ++at)
      found += is_found(test::Fault::wrong_stream, at, one) ? 1 : 0;
    EXPECT_GE(found, kPieces / 4) << "of work from " << middle << " on";
  }
  DelayedStreams::get().choose(Delays::none);
}

TEST(Device, ACheckpointGoesFromOneToTheOther) {
  test::install_test_device();
  const std::vector<std::string> words = {"model=resnet_glyph", "train.optimizer=adamw", "train.precision=float64"};
  const test::TemporaryFolder folder;
  const auto there =
      train_on({.device = at::kPrivateUse1, .ranks = 2, .operators = true, .folder = folder.path()}, words);
  const auto on = train_on({.ranks = 2, .operators = true, .folder = folder.path(), .resumes = true}, words);
  EXPECT_EQ(on.losses, std::vector(there.losses.begin() + 4, there.losses.end()));
  EXPECT_EQ(on.weights_hash, there.weights_hash);
  const auto back = train_on(
      {.device = at::kPrivateUse1, .ranks = 2, .operators = true, .folder = folder.path(), .resumes = true}, words);
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
