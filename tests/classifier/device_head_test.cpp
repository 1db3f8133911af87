#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tandem/classifier/class_sampler.h"
#include "tandem/classifier/class_sharded_head.h"
#include "tandem/classifier/softmax_loss.h"
#include "tandem/comm/world.h"
#include "tests/device/test_device.h"

// The head where its tensors are not the host's: what it does there, in tiles, against the CPU's passes.
namespace tandem::classifier {
namespace {

using test::DelayedStreams;
using test::Delays;

constexpr int64_t kClasses = 41, kRows = 22, kDim = 13;

struct Results {
  Tensor loss, of_features, of_weight;
};

std::vector<Scoring> scorings() {
  auto weight_only = sphereface(3, 2), detached = arcface(16, 0.4);
  detached.margin.gradient = TargetGradient::detached;
  return {plain_softmax(),  normalised_softmax(16),
          cosface(16, 0.3), arcface(16, 0.4),
          detached,         combined_margin(12, 1.1, 0.2, 0.1),
          weight_only,      large_margin_softmax(2, 1)};
}

/// Several rows of one class, classes without a row, rows without a target.
Tensor targets_of_rows() {
  auto targets = at::arange(kRows).mul_(7).remainder_(kClasses);
  for (const int64_t row : {3, 8, 9, 15}) targets[row] = 5;
  targets[11] = -1;
  return targets;
}

Tensor drawn(at::IntArrayRef sizes, uint64_t seed, double size, at::ScalarType type) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).mul_(size).to(type);
}

Results results_on(c10::Device device, const Scoring& scoring, at::ScalarType type, const LossOptions& options) {
  const auto group = comm::make_single_group();
  auto features = drawn({kRows, kDim}, 1, 1, type).to(device).requires_grad_();
  auto weight = drawn({kClasses, kDim}, 2, 0.4, type).to(device).requires_grad_();
  const auto loss = sharded_softmax_loss(features, weight, targets_of_rows(), 0, kClasses, scoring, *group, options);
  loss.backward();
  const auto dense = [](const Tensor& gradient) { return gradient.is_sparse() ? gradient.to_dense() : gradient; };
  const auto here = [&](const Tensor& x) { return x.defined() ? dense(x.cpu()).to(at::kDouble) : x; };
  return {here(loss.detach()), here(features.grad()), here(weight.grad())};
}

void expect_near(const Results& there, const Results& here, double tolerance) {
  const auto near = [&](const Tensor& a, const Tensor& b, const char* what) {
    const double difference = (a - b).abs().max().item<double>(), largest = b.abs().max().item<double>();
    EXPECT_LE(difference, tolerance * largest) << what;
  };
  near(there.loss, here.loss, "loss");
  near(there.of_features, here.of_features, "features");
  if (here.of_weight.defined()) near(there.of_weight, here.of_weight, "weight");
}

class DeviceHead : public ::testing::Test {
 protected:
  void SetUp() override {
    test::install_test_device();
    DelayedStreams::get().choose(Delays::longest);
  }
  void TearDown() override {
    EXPECT_EQ(DelayedStreams::get().take_findings(), std::vector<std::string>());
    DelayedStreams::get().choose(Delays::none);
  }

  static void expect_as_on_the_host(const LossOptions& options, at::ScalarType type, double tolerance) {
    for (const auto& scoring : scorings()) {
      for (const int64_t rows : {1000, 16, 7}) {
        for (const int64_t keep : {0, 20, 1000}) {
          SCOPED_TRACE(std::to_string(scoring.scale) + ' ' + std::to_string(scoring.margin.factor) + ", blocks of " +
                       std::to_string(rows) + ", kept " + std::to_string(keep));
          auto own = options;
          own.blocks.rows = rows;
          own.blocks.keep_bytes = keep * 32 * static_cast<int64_t>(c10::elementSize(type));
          const auto there = results_on(at::kPrivateUse1, scoring, type, own);
          expect_near(there, results_on(at::kCPU, scoring, type, own), tolerance);
        }
      }
    }
  }
};

TEST_F(DeviceHead, HasTheLossAndTheGradientsOfTheHost) {
  expect_as_on_the_host({}, at::kDouble, 1e-13);
  expect_as_on_the_host({}, at::kFloat, 2e-5);
}

TEST_F(DeviceHead, InBfloat16ComesAsNearAsTheHost) {
  LossOptions options;
  options.blocks.bf16 = true;
  expect_as_on_the_host(options, at::kFloat, 3e-2);
}

TEST_F(DeviceHead, SamplesClasses) {
  LossOptions options;
  options.sample = sample_classes({0.5, true}, 3, 0, 0, kClasses, targets_of_rows());
  ASSERT_GT(options.sample->log_weight, 0);
  expect_as_on_the_host(options, at::kDouble, 1e-13);
}

/// The rows' gradients go to the update, block by block.
TEST_F(DeviceHead, UpdatesRowsInBackward) {
  for (const auto& scoring : scorings()) {
    LossOptions options = {.blocks = {.rows = 9}};
    const auto kept = results_on(at::kPrivateUse1, scoring, at::kDouble, options);
    auto given = at::zeros({kClasses, kDim}, at::kDouble);
    options.update = [&](const Rows& rows, const Tensor& gradient) {
      given.narrow(0, rows.begin, rows.count).copy_(gradient.cpu());
    };
    const auto updated = results_on(at::kPrivateUse1, scoring, at::kDouble, options);
    EXPECT_FALSE(updated.of_weight.defined());
    EXPECT_TRUE(given.equal(kept.of_weight));
    EXPECT_TRUE(updated.of_features.equal(kept.of_features));
  }
}

/// Scores that no exponential holds, and a tile whose scores are far below those of another. An exponential is off by
/// what its score was rounded by, here a number up to 2e4.
TEST_F(DeviceHead, NeitherLargeNorSmallScoresOverflow) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const double scale : {1e-6, 1.0, 3e3}) {
      auto scoring = plain_softmax();
      scoring.scale = scale;
      const LossOptions options = {.blocks = {.rows = 5}};
      const auto there = results_on(at::kPrivateUse1, scoring, type, options);
      expect_near(there, results_on(at::kCPU, scoring, type, options), type == at::kFloat ? 4e-3 : 1e-11);
    }
  }
}

/// More rows than the host draws at once.
TEST_F(DeviceHead, BeginsWithTheWeightOfTheHost) {
  const auto group = comm::make_single_group();
  HeadOptions options = {.classes = 70'001, .dim = 64};
  const auto here = ClassShardedHead(options, *group).weight().detach();
  options.device = at::kPrivateUse1;
  EXPECT_TRUE(ClassShardedHead(options, *group).weight().detach().cpu().equal(here));
}

TEST_F(DeviceHead, WaitsForNothing) {
  const auto group = comm::make_single_group();
  const auto features = drawn({kRows, kDim}, 1, 1, at::kFloat).to(at::kPrivateUse1).requires_grad_();
  const auto weight = drawn({kClasses, kDim}, 2, 0.4, at::kFloat).to(at::kPrivateUse1).requires_grad_();
  const auto before = DelayedStreams::get().num_waits();
  for (auto scoring : scorings()) {
    for (const double smoothing : {0.0, 0.1}) {
      scoring.smoothing = smoothing;
      sharded_softmax_loss(features, weight, targets_of_rows(), 0, kClasses, scoring, *group, {.blocks = {.rows = 7}})
          .backward();
    }
  }
  EXPECT_EQ(DelayedStreams::get().num_waits(), before);
}

}  // namespace
}  // namespace tandem::classifier
