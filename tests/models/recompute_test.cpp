#include "tandem/memory/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/models/backbone.h"

namespace tandem::models {
namespace {

using memory::Block;
using memory::Flow;

/// How the blocks of a chain are run.
using Run = std::function<Flow(const std::vector<Block>&, const Flow&)>;

Flow run_plain(const std::vector<Block>& blocks, const Flow& input) {
  return memory::run(memory::Chain{blocks}, input);
}

at::Generator& noise() {
  static auto generator = at::detail::createCPUGenerator();
  return generator;
}

Flow recompute(const std::vector<Block>& blocks, const Flow& input, const Run& run) {
  memory::RecomputeOptions options = {.generators = {noise()}, .values = memory::ValueCheck::all};
  for (const auto& block : blocks) {
    options.modules.insert(options.modules.end(), block.modules.begin(), block.modules.end());
  }
  return memory::recompute([=](const Flow& flow) { return run(blocks, flow); }, input, options);
}

Flow run_each(const std::vector<Block>& blocks, const Flow& input) {
  auto flow = input;
  for (const auto& block : blocks) flow = recompute({block}, flow, run_plain);
  return flow;
}

/// Halves, of halves, down to one block.
Flow run_halves(const std::vector<Block>& blocks, const Flow& input) {
  if (blocks.size() == 1) return run_plain(blocks, input);
  const auto middle = blocks.begin() + static_cast<int64_t>(blocks.size() / 2);
  const auto first = recompute({blocks.begin(), middle}, input, run_halves);
  return recompute({middle, blocks.end()}, first, run_halves);
}

/// A block behind the model, with random numbers of its own.
Block dropout() {
  return memory::make_block("dropout", {},
                            [](const Tensor& x) { return x.mul(at::empty_like(x).bernoulli_(0.8, noise())).div(0.8); });
}

/// Parameters and buffers after five steps of descent.
std::vector<Tensor> train(const ModelOptions& options, at::ScalarType type, const Run& run) {
  const auto model = make(options);
  model->to(type);
  auto blocks = model->chain().blocks;
  blocks.push_back(dropout());
  noise().set_current_seed(3);
  const auto images = at::empty({2, options.channels, options.size, options.size});
  for (uint64_t step = 0; step < 5; ++step) {
    fill_normal_(images, 1.0, 7, step);
    run(blocks, {images.to(type)})[0].square().sum().backward();
    const at::NoGradGuard no_grad;
    for (auto& weight : model->parameters()) {
      weight.sub_(weight.grad(), 1e-4);
      weight.mutable_grad().reset();
    }
  }
  auto all = model->parameters();
  for (const auto& buffer : model->buffers()) all.push_back(buffer);
  return all;
}

bool are_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return x.equal(y); });
}

class RecomputedModel : public testing::TestWithParam<std::tuple<const char*, at::ScalarType>> {};

TEST_P(RecomputedModel, HasTheSameBitsAfterFiveSteps) {
  const RankScope rank(1);  // a thread-rank: the default generator is not its own
  const auto& [name, type] = GetParam();
  const ModelOptions options = {.name = name, .channels = 3, .size = 32};
  const auto plain = train(options, type, run_plain);
  EXPECT_TRUE(are_equal(train(options, type, run_each), plain));
  EXPECT_TRUE(are_equal(train(options, type, run_halves), plain));
}

// float32 takes the fused batch normalisation, float64 libtorch's.
INSTANTIATE_TEST_SUITE_P(Models, RecomputedModel,
                         testing::Values(std::tuple{"resnet_glyph", at::kFloat},
                                         std::tuple{"resnet_glyph", at::kDouble}, std::tuple{"resnet18", at::kFloat},
                                         std::tuple{"resnet18", at::kDouble}, std::tuple{"resnet50", at::kFloat},
                                         std::tuple{"vit_tiny", at::kFloat}),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + toString(std::get<1>(info.param));
                         });

TEST(RecomputedModels, AnotherSeedGivesOtherBits) {
  EXPECT_FALSE(are_equal(train({.name = "mlp", .channels = 3}, at::kFloat, run_each),
                         train({.name = "mlp", .channels = 3, .seed = 2}, at::kFloat, run_each)));
}

}  // namespace
}  // namespace tandem::models
