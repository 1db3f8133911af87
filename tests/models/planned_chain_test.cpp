#include "tandem/memory/planned_chain.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>

#include "tandem/base/context.h"
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
        images(at::rand({of.batch, 1, of.size, of.size}, of.type)) {
    backbone->to(of.type);
    chain = cut ? in_parts(backbone->chain()) : backbone->chain();
    chain.blocks.push_back(memory::make_block("loss", {}, [](const Tensor& y) { return y.pow(2).mean(); }));
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
  static void SetUpTestSuite() { memory::install_meter(); }
};

void expect_same_bits_within_the_predicted_bytes(const Job& job) {
  std::mt19937 random(5);
  const int blocks = static_cast<int>(job.chain.blocks.size());
  const auto plain = measured(job.chain, job);
  std::vector<RecomputePlan> plans = {plan_none(job.stages), plan_sqrt(job.stages), plan_log(job.stages)};
  for (int i = 0; i < 6; ++i) plans.push_back(random_plan(0, blocks - 1, random));
  const auto least = memory::least_budget(job.stages).bytes, most = memory::cost_of(plans[0], job.stages).peak;
  for (const int64_t part : {0, 1, 2, 3}) plans.push_back(plan_optimal(job.stages, least + (most - least) * part / 4));
  for (const auto& plan : plans) {
    SCOPED_TRACE(to_text(plan));
    const auto chain = planned_chain(job.chain, plan);
    const auto predicted = memory::compose(memory::rehearse(chain, {job.images}), {});
    const auto found = measured(chain, job);
    EXPECT_EQ(predicted.account.peak_bytes(), found.peak);
    EXPECT_LE(predicted.highest[static_cast<size_t>(Category::activations)], memory::cost_of(plan, job.stages).peak);
    for (size_t i = 0; i < plain.gradients.size(); ++i) EXPECT_TRUE(found.gradients[i].equal(plain.gradients[i])) << i;
  }
}

TEST_P(PlannedChain, GivesTheSameBitsWithinThePredictedBytes) {
  at::set_num_threads(1);
  expect_same_bits_within_the_predicted_bytes(Job(GetParam(), /*cut=*/false));
}

TEST_P(PlannedChain, OfPartsGivesTheSameBitsWithinThePredictedBytes) {
  at::set_num_threads(1);
  expect_same_bits_within_the_predicted_bytes(Job(GetParam(), /*cut=*/true));
}

TEST_P(PlannedChain, OfPartsTakesTheBytesOfBlocks) {
  at::set_num_threads(1);
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

INSTANTIATE_TEST_SUITE_P(Models, PlannedChain,
                         testing::Values(Case{"mlp", 32, 16, at::kDouble}, Case{"resnet_glyph", 13, 32},
                                         Case{"resnet18", 3, 48}, Case{"resnet50", 2, 64},
                                         Case{"resnet50", 2, 64, at::kFloat, Norm::abn_swish}, Case{"resnet50", 8, 96},
                                         Case{"resnet18", 2, 48, at::kFloat, Norm::none}),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" + std::to_string(info.index);
                         });

}  // namespace
}  // namespace tandem::models
