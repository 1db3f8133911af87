#include "tandem/memory/chain.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tandem/memory/meter.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

torch::nn::Sequential small() {
  torch::nn::Sequential layers(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3), torch::nn::ReLU(),
                               torch::nn::Linear(3, 2));
  layers->to(at::kDouble);
  return layers;
}

class ChainTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_meter(); }
};

TEST_F(ChainTest, OfAContainerHasABlockForEachChild) {
  auto layers = small();
  const auto chain = chain_of(layers.ptr());
  ASSERT_EQ(chain.blocks.size(), 4u);
  EXPECT_EQ(chain.blocks[3].name, "3");
  EXPECT_EQ(chain.blocks[3].modules, (std::vector<std::shared_ptr<torch::nn::Module>>{layers->ptr(3)}));
  layers->eval();
  const auto x = at::randn({5, 4}, at::kDouble);
  EXPECT_TRUE(run(chain, x).equal(layers->forward(x)));
}

TEST_F(ChainTest, OfAModuleOfAnyKindHasOne) {
  torch::nn::Linear linear(4, 3);
  const auto chain = chain_of("all", linear.ptr(), [linear](const Tensor& x) mutable { return linear(x); });
  const auto x = at::randn({5, 4});
  ASSERT_EQ(chain.blocks.size(), 1u);
  EXPECT_TRUE(run(chain, x).equal(linear->forward(x)));
}

TEST_F(ChainTest, ABlockRunsItsPartsAndCanBeCutIntoThem) {
  torch::nn::Linear first(4, 3), second(3, 2);
  const auto part = [](torch::nn::Linear layer) {
    return Block{.name = {}, .modules = {layer.ptr()}, .forward = [layer](const Flow& flow) mutable {
                   return Flow{layer(flow[0])};
                 }};
  };
  Chain chain{
      {make_block("both", {part(first), part(second)}), make_block("last", {}, [](const Tensor& x) { return x * 2; })}};
  const auto cut = in_parts(chain);
  ASSERT_EQ(cut.blocks.size(), 3u);
  EXPECT_EQ(cut.blocks[0].name, "both");
  EXPECT_EQ(cut.blocks[1].name, "both");
  EXPECT_EQ(cut.blocks[2].name, "last");
  EXPECT_EQ(parameters_of(chain.blocks[0]).size(), 4u);
  EXPECT_EQ(parameters_of(cut.blocks[1]).size(), 2u);
  const auto x = at::randn({5, 4});
  EXPECT_TRUE(run(chain, x).equal(second(first(x)) * 2));
  EXPECT_TRUE(run(cut, x).equal(run(chain, x)));
}

TEST_F(ChainTest, ACutInsideABranchPassesTheShortcutOn) {
  const auto half = [](const Flow& flow) { return Flow{flow[0] * 2, flow[0]}; };
  const Chain open{{{"branch", {}, half}}};
  const Chain closed{{{"branch", {}, half}, {"sum", {}, [](const Flow& flow) { return Flow{flow[0] + flow[1]}; }}}};
  const auto x = at::ones({2});
  EXPECT_TRUE(run(closed, x).equal(x * 3));
  EXPECT_EQ(run(open, Flow{x}).size(), 2u);
  EXPECT_EQ(test::text_of<c10::ValueError>([&] { run(open, x); }), "chain: its last block gives 2 values, wanted one");
}

/// The block in which each event of a rank happened, without repetitions.
std::vector<std::string> blocks_of(const std::vector<Event>& events) {
  std::vector<std::string> names;
  for (const auto& event : events) {
    if (event.what != Event::What::allocate) continue;
    const auto name = block_name(event.block);
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

TEST_F(ChainTest, EachByteOfForwardAndBackwardBelongsToABlock) {
  const auto double_it = [](const Flow& flow) { return Flow{flow[0] * flow[0]}; };
  const Chain chain{{{"first", {}, double_it}, {"second", {}, double_it}, {"third", {}, double_it}}};
  const RankScope rank(30);
  const auto x = at::ones({10}).requires_grad_();
  EventLog forward(30);
  auto y = run(chain, x).sum();
  EXPECT_EQ(blocks_of(forward.end()), (std::vector<std::string>{"first", "second", "third", ""}));
  EventLog backward(30);
  {
    const PhaseScope phase(Phase::backward);
    y.backward();
  }
  EXPECT_EQ(blocks_of(backward.end()), (std::vector<std::string>{"", "third", "second", "first"}));
}

TEST_F(ChainTest, CostsAreExactAndLeaveTheModelAsItIs) {
  auto layers = small();
  const auto chain = chain_of(layers.ptr());
  layers->ptr<torch::nn::LinearImpl>(0)->weight.mutable_grad() = at::ones({3, 4}, at::kDouble);
  const auto before = layers->named_buffers()["1.running_mean"].clone();
  const RankScope rank(31);
  const auto x = at::randn({5, 4}, at::kDouble);
  const auto live = account(31).live_bytes();
  const auto costs = measure(chain, {x});
  EXPECT_EQ(account(31).live_bytes(), live);
  EXPECT_EQ(account(31).peak_bytes(), live);
  EXPECT_TRUE(layers->named_buffers()["1.running_mean"].equal(before));
  EXPECT_TRUE(layers->ptr<torch::nn::LinearImpl>(0)->weight.grad().equal(at::ones({3, 4}, at::kDouble)));
  EXPECT_FALSE(layers->ptr<torch::nn::LinearImpl>(3)->weight.grad().defined());
  ASSERT_EQ(costs.size(), 4u);
  const std::array<int64_t, 4> parameters = {15, 6, 0, 8}, buffers = {0, 7, 0, 0}, outputs = {120, 120, 120, 80},
                               saved = {0, 48, 0, 0};  // mean and deviation of three channels
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(costs[i].name, std::to_string(i));
    EXPECT_EQ(costs[i].parameters, parameters[i]) << i;
    EXPECT_EQ(costs[i].buffers, buffers[i]) << i;
    EXPECT_EQ(costs[i].output, outputs[i]) << i;
    EXPECT_EQ(costs[i].saved, saved[i]) << i;
    if (i == 1) continue;  // libtorch's batch_norm has temporaries
    EXPECT_EQ(costs[i].forward_extra, 0) << i;
  }
  EXPECT_EQ(costs[2].backward_extra, 120);            // the gradient of its input
  EXPECT_EQ(costs[3].backward_extra, 120 + 48 + 16);  // of its input, weight and bias
}

}  // namespace
}  // namespace tandem::memory
