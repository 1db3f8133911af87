#include "tandem/memory/rehearsal.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tandem/base/context.h"
#include "tandem/memory/meter.h"
#include "tandem/models/backbone.h"

namespace tandem::models {
namespace {

struct Case {
  const char* model;
  int64_t batch, size;
  at::ScalarType type = at::kFloat;
  Norm norm = Norm::batch;
  const char* activation = "relu";
};

/// The model, then a loss.
memory::Chain with_loss(const Backbone& backbone) {
  auto chain = backbone.chain();
  chain.blocks.push_back(memory::make_block("loss", {}, [](const Tensor& features) { return features.pow(2).mean(); }));
  return chain;
}

/// The peak of one step, in which nothing but the step's own memory is live at first.
int64_t measured(const memory::Chain& chain, const Tensor& images, Backbone& backbone) {
  const memory::ProbeScope probe;
  const CategoryScope category(Category::activations);
  const auto loss = memory::run(chain, images);
  loss.backward();
  for (auto& parameter : backbone.parameters()) parameter.mutable_grad().reset();
  return probe.account().peak_bytes();
}

class Rehearsal : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { memory::install_meter(); }
};

TEST_P(Rehearsal, PredictsThePeakOfAStepToTheByte) {
  const auto& of = GetParam();
  at::set_num_threads(1);
  auto backbone = make({.name = of.model,
                        .channels = 1,
                        .size = of.size,
                        .embedding = 16,
                        .norm = of.norm,
                        .activation = of.activation});
  backbone->to(of.type);
  const auto images = at::rand({of.batch, 1, of.size, of.size}, of.type);
  const auto chain = with_loss(*backbone);
  const auto predicted = memory::compose(memory::rehearse(chain, {images}), {}).account.peak_bytes();
  for (int step = 0; step < 2; ++step) EXPECT_EQ(predicted, measured(chain, images, *backbone));
}

/// Two micro-batches of two images and of three, block by block, before the backward of both: F0 F1 B0 B1.
TEST(RehearsalOfMicroBatches, IsComposedInTheOrderOfTheirBlocks) {
  memory::install_meter();
  at::set_num_threads(1);
  auto backbone = make({.name = "resnet_glyph", .channels = 1, .size = 32, .embedding = 16, .norm = Norm::group});
  const auto chain = with_loss(*backbone);
  const std::vector<Tensor> images = {at::rand({2, 1, 32, 32}), at::rand({3, 1, 32, 32})};
  memory::RehearsalOptions later;
  for (const auto& parameter : backbone->parameters()) later.added_to.push_back(parameter);
  const std::vector<std::vector<memory::BlockRecord>> records = {memory::rehearse(chain, {images[0]}),
                                                                 memory::rehearse(chain, {images[1]}, later)};
  using What = memory::Action::What;
  std::vector<memory::Action> order;
  for (size_t block = 0; block < chain.blocks.size(); ++block) {
    for (const size_t micro : {0, 1}) order.push_back({What::forward, block, micro});
  }
  for (const size_t micro : {0, 1}) {
    for (size_t block = chain.blocks.size(); block-- > 0;) order.push_back({What::backward, block, micro});
  }
  const auto predicted = memory::compose(records, order, {});

  const memory::ProbeScope probe;
  const CategoryScope category(Category::activations);
  std::vector<memory::Flow> flows = {{images[0]}, {images[1]}};
  for (const auto& block : chain.blocks) {
    const BlockScope scope(block_number(block.name));
    for (auto& flow : flows) flow = block.forward(flow);
  }
  EXPECT_EQ(predicted.saved, probe.account().live_bytes());
  for (auto& flow : flows) {
    std::exchange(flow, {}).at(0).backward();
  }
  for (auto& parameter : backbone->parameters()) parameter.mutable_grad().reset();
  EXPECT_EQ(predicted.account.peak_bytes(), probe.account().peak_bytes());
  const auto one_after_the_other = memory::compose(records[0], {}).account.peak_bytes();
  EXPECT_GT(predicted.account.peak_bytes(), one_after_the_other);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Rehearsal,
    testing::Values(Case{"mlp", 32, 32}, Case{"mlp", 7, 16, at::kDouble}, Case{"resnet_glyph", 32, 32},
                    Case{"resnet_glyph", 13, 32, at::kDouble}, Case{"resnet_glyph", 5, 32, at::kFloat, Norm::group},
                    Case{"resnet_glyph", 5, 32, at::kFloat, Norm::none}, Case{"resnet18", 3, 48},
                    Case{"resnet50", 3, 64}, Case{"mlp", 32, 32, at::kFloat, Norm::batch, "swish-fused"},
                    Case{"mlp", 32, 32, at::kFloat, Norm::batch, "swish-naive"},
                    Case{"resnet_glyph", 5, 32, at::kFloat, Norm::group, "mish-fused"},
                    Case{"resnet18", 3, 48, at::kFloat, Norm::batch, "swish-fused"},
                    Case{"resnet_glyph", 32, 32, at::kFloat, Norm::abn_leaky},
                    Case{"resnet_glyph", 5, 32, at::kFloat, Norm::abn_swish},
                    Case{"resnet50", 3, 64, at::kFloat, Norm::abn_leaky},
                    Case{"resnet_glyph", 75, 32, at::kFloat, Norm::ghost}, Case{"vit_tiny", 5, 32},
                    Case{"vit_tiny", 3, 48, at::kDouble, Norm::batch, "gelu-fused"}),
    [](const auto& info) { return std::string(info.param.model) + "_" + std::to_string(info.index); });

}  // namespace
}  // namespace tandem::models
