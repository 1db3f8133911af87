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
                    Case{"resnet_glyph", 75, 32, at::kFloat, Norm::ghost}),
    [](const auto& info) { return std::string(info.param.model) + "_" + std::to_string(info.index); });

}  // namespace
}  // namespace tandem::models
