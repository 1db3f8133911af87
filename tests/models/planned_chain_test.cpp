#include "tandem/memory/planned_chain.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tandem/base/context.h"
#include "tandem/memory/keep_ways.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/models/backbone.h"

namespace tandem::models {
namespace {

using memory::Chain;
using memory::RecomputePlan;

struct Case {
  const char* model;
  int64_t batch, size;
  at::ScalarType type = at::kFloat;
  Norm norm = Norm::batch;
};

/// A model and a loss.
struct Job {
  explicit Job(const Case& of, bool cut)
      : backbone(make({.name = of.model, .channels = 1, .size = of.size, .embedding = 16, .norm = of.norm})),
        images(at::rand({of.batch, 1, of.size, of.size}, at::detail::createCPUGenerator(11), of.type)) {
    backbone->to(of.type);
    chain = cut ? in_parts(backbone->chain()) : backbone->chain();
    chain.blocks.push_back(memory::make_block("loss", {}, [](const Tensor& y) {
      return (y * at::arange(y.numel(), y.options()).cos().reshape(y.sizes())).mean();
    }));
    stages = memory::stages_of(chain, memory::only(memory::rehearse(chain, {images}), Category::activations));
  }

  std::shared_ptr<Backbone> backbone;
  Tensor images;
  Chain chain;
  std::vector<memory::Stage> stages;
};

/// A random plan of the blocks first..last; the last is kept.
RecomputePlan random_plan(int first, int last, std::mt19937& random) {
  RecomputePlan plan;
  while (first <= last) {
    const int end = first + static_cast<int>(random() % 4);
    if (random() % 3 == 0 || end >= last) {
      plan.push_back({first, first, 0, {}});
      ++first;
      continue;
    }
    plan.push_back({first, end, 0, random_plan(first, end, random)});
    first = end + 1;
  }
  return plan;
}

struct Measured {
  int64_t peak = 0;
  std::vector<Tensor> gradients;
};

Measured measured(const Chain& chain, const Job& job) {
  const memory::ProbeScope probe;
  const CategoryScope category(Category::activations);
  memory::run(chain, job.images).backward();
  Measured result{.peak = probe.account().peak_bytes()};
  for (auto& parameter : job.backbone->parameters()) {
    result.gradients.push_back(parameter.grad().clone());
    parameter.mutable_grad().reset();
  }
  return result;
}

class PlannedChain : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    memory::install_meter();
    at::set_num_threads(1);  // more would take other bytes
  }
};

/// Runs a plan, and holds that its peak is the predicted one and within the planner's bound.
Measured measured_as_predicted(const RecomputePlan& plan, const Job& job, const std::vector<memory::Stage>& stages) {
  const auto chain = planned_chain(job.chain, plan);
  const auto predicted = memory::compose(memory::rehearse(chain, {job.images}), {});
  auto found = measured(chain, job);
  EXPECT_EQ(predicted.account.peak_bytes(), found.peak);
  EXPECT_LE(predicted.highest[static_cast<size_t>(Category::activations)], memory::cost_of(plan, stages).peak);
  return found;
}

void expect_same_bits_within_the_predicted_bytes(const Job& job) {
  std::mt19937 random(5);
  const int blocks = static_cast<int>(job.chain.blocks.size());
  const auto plain = measured(job.chain, job);
  const bool is_long = blocks > 40;  // fewer plans, for a forward takes a while
  std::vector<RecomputePlan> plans = {plan_none(job.stages), plan_sqrt(job.stages)};
  if (!is_long) plans.push_back(plan_log(job.stages));
  for (int i = 0; i < (is_long ? 2 : 6); ++i) plans.push_back(random_plan(0, blocks - 1, random));
  const auto least = memory::least_budget(job.stages).bytes, most = memory::cost_of(plans[0], job.stages).peak;
  for (int64_t part = 0; part < 4; part += is_long ? 2 : 1) {
    plans.push_back(plan_optimal(job.stages, least + (most - least) * part / 4));
  }
  for (const auto& plan : plans) {
    SCOPED_TRACE(to_text(plan));
    const auto found = measured_as_predicted(plan, job, job.stages);
    for (size_t i = 0; i < plain.gradients.size(); ++i) EXPECT_TRUE(found.gradients[i].equal(plain.gradients[i])) << i;
  }
}

TEST_P(PlannedChain, GivesTheSameBitsWithinThePredictedBytes) {
  expect_same_bits_within_the_predicted_bytes(Job(GetParam(), /*cut=*/false));
}

TEST_P(PlannedChain, OfPartsGivesTheSameBitsWithinThePredictedBytes) {
  expect_same_bits_within_the_predicted_bytes(Job(GetParam(), /*cut=*/true));
}

TEST_P(PlannedChain, OfPartsTakesTheBytesOfBlocks) {
  const Job whole(GetParam(), /*cut=*/false), cut(GetParam(), /*cut=*/true);
  const auto expected = measured(whole.chain, whole), found = measured(cut.chain, cut);
  EXPECT_EQ(found.peak, expected.peak);
  EXPECT_EQ(cut.chain.blocks.size() > whole.chain.blocks.size(), std::string(GetParam().model) != "mlp");
}

TEST_P(PlannedChain, OfWholeBlocksIsOneOfParts) {
  const Job whole(GetParam(), /*cut=*/false), cut(GetParam(), /*cut=*/true);
  const auto plan = plan_sqrt(whole.stages);
  const auto predicted = [&](const Chain& chain, const RecomputePlan& of) {
    return memory::compose(memory::rehearse(planned_chain(chain, of), {whole.images}), {}).account.peak_bytes();
  };
  EXPECT_EQ(predicted(cut.chain, in_parts(plan, whole.stages)), predicted(whole.chain, plan));
}

/// Kept blocks in a random way of the first `ways`.
void keep_in_ways(RecomputePlan& plan, int ways, std::mt19937& random) {
  for (auto& node : plan) {
    if (node.inner.empty()) node.keep = static_cast<int>(random() % static_cast<unsigned>(ways + 1));
    keep_in_ways(node.inner, ways, random);
  }
}

/// Of all gradients together.
double relative_error(const Measured& found, const Measured& exact) {
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.gradients.size(); ++i) {
    error += (found.gradients[i] - exact.gradients[i]).square().sum().item<double>();
    size += exact.gradients[i].square().sum().item<double>();
  }
  return std::sqrt(error / size);
}

TEST_P(PlannedChain, LossyWaysHaveThePredictedBytesAndGradientsNearTheExactOnes) {
  const Job job(GetParam(), /*cut=*/true);
  std::mt19937 random(7);
  const int blocks = static_cast<int>(job.chain.blocks.size());
  const auto plain = measured(job.chain, job);
  auto stages = job.stages;
  for (const auto* name : {"bf16", "int8"}) {
    const auto kept = kept_chain(job.chain, memory::keep_way(name));
    const auto records = memory::only(memory::rehearse(kept, {job.images}), Category::activations);
    add_keep(stages, memory::keep_way(name), stages_of(kept, records));
  }
  std::vector<RecomputePlan> plans(blocks > 40 ? 3 : 6);
  for (int i = 0; i < blocks; ++i) {
    plans[0].push_back({.first = i, .last = i, .keep = 1});
    plans[1].push_back({.first = i, .last = i, .keep = 2});
  }
  for (size_t i = 2; i < plans.size(); ++i) {
    plans[i] = random_plan(0, blocks - 1, random);
    keep_in_ways(plans[i], 2, random);
  }
  for (const auto& plan : plans) {
    SCOPED_TRACE(to_text(plan));
    const auto found = measured_as_predicted(plan, job, stages);
    if (GetParam().batch < 8) continue;  // the norms of so few images cancel nearly all of a gradient
    const double error = relative_error(found, plain);
    EXPECT_GT(error, 0);
    EXPECT_LT(error, to_text(plan).find("int8") == std::string::npos ? 0.03 : 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PlannedChain,
                         testing::Values(Case{"mlp", 32, 16, at::kDouble}, Case{"resnet_glyph", 13, 32},
                                         Case{"resnet18", 3, 48}, Case{"resnet50", 2, 48},
                                         Case{"resnet18", 2, 32, at::kFloat, Norm::abn_swish},
                                         Case{"resnet_glyph", 9, 32, at::kFloat, Norm::none}),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" + std::to_string(info.index);
                         });

}  // namespace
}  // namespace tandem::models
