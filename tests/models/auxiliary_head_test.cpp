#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/models/backbone.h"

namespace tandem::models {
namespace {

std::shared_ptr<Backbone> network(int64_t cells, int64_t size, bool has_auxiliary = true, Stem stem = Stem::cifar) {
  auto model = make({.name = "darts-v1",
                     .channels = 3,
                     .size = size,
                     .embedding = 0,
                     .cells = cells,
                     .cell_channels = 4,
                     .stem = stem,
                     .has_auxiliary = has_auxiliary});
  model->to(at::kDouble);
  return model;
}

memory::Flow run(const Backbone& model, const Tensor& images) {
  return memory::run(model.chain(), memory::Flow{images});
}

Tensor normalised(const Tensor& x, const Backbone& model, const std::string& name) {
  const auto parameters = model.named_parameters();
  return at::batch_norm(x, parameters[name + ".weight"], parameters[name + ".bias"], {}, {}, true, 0.1, 1e-5, false);
}

/// What an auxiliary head makes of values that it pools by such windows.
Tensor stated(const Backbone& model, const Tensor& values, int64_t window, int64_t stride, bool is_last_normalised) {
  const auto parameters = model.named_parameters();
  const std::string list = "auxiliary_head.features.";
  const auto pooled = at::avg_pool2d(at::relu(values), {window, window}, {stride, stride});
  const auto narrow = at::relu(normalised(at::conv2d(pooled, parameters[list + "2.weight"]), model, list + "3"));
  const auto whole = at::conv2d(narrow, parameters[list + "5.weight"]);
  return at::relu(is_last_normalised ? normalised(whole, model, list + "6") : whole).flatten(1);
}

/// The output of the cell that the head looks at.
Tensor looked_at(const Backbone& model, int64_t cell, const Tensor& images) {
  memory::Chain before{{model.chain().blocks.begin(), model.chain().blocks.begin() + cell + 2}};
  EXPECT_EQ(before.blocks.back().name, "cells." + std::to_string(cell));
  return memory::run(before, memory::Flow{images})[0];
}

TEST(AuxiliaryHead, SeesTheCellAtTwoThirdsThroughTwoByTwoWindows) {
  struct Case {
    int64_t cells, size, window, stride;
    Stem stem = Stem::cifar;
  };
  for (const auto& [cells, size, window, stride, stem] : std::vector<Case>{
           {3, 32, 5, 3}, {5, 28, 5, 2}, {4, 16, 3, 1}, {3, 8, 1, 1}, {3, 48, 6, 6}, {6, 224, 5, 2, Stem::imagenet}}) {
    const auto model = network(cells, size, true, stem);
    const auto images = at::rand({3, 3, size, size}, at::kDouble);
    const auto flow = run(*model, images);
    ASSERT_EQ(flow.size(), 2U);
    EXPECT_EQ(model->auxiliary_dim(), 768);
    const auto wanted = stated(*model, looked_at(*model, 2 * cells / 3, images), window, stride, stem == Stem::cifar);
    EXPECT_EQ(flow[1].sizes(), wanted.sizes());
    EXPECT_LT((flow[1] - wanted).abs().max().item<double>(), 1e-12) << cells << " " << size;
  }
}

TEST(AuxiliaryHead, LeavesTheFeaturesAsTheyAre) {
  const auto with = network(5, 16), without = network(5, 16, false);
  const auto images = at::rand({4, 3, 16, 16}, at::kDouble);
  EXPECT_TRUE(run(*with, images)[0].equal(run(*without, images)[0]));
  EXPECT_TRUE(with->forward(images).equal(without->forward(images)));
  EXPECT_EQ(without->auxiliary_dim(), 0);
  EXPECT_EQ(run(*without, images).size(), 1U);
}

TEST(AuxiliaryHead, IsLeftOutInEvaluation) {
  const auto with = network(5, 16);
  with->eval();
  EXPECT_EQ(run(*with, at::rand({4, 3, 16, 16}, at::kDouble)).size(), 1U);
}

TEST(AuxiliaryHead, ItsLossReachesTheCellsBeforeItAlone) {
  const auto model = network(5, 16);
  run(*model, at::rand({4, 3, 16, 16}, at::kDouble))[1].sum().backward();
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(parameters["cells.3.preprocess1.op.1.weight"].grad().defined());
  EXPECT_FALSE(parameters["cells.4.preprocess1.op.1.weight"].grad().defined());
}

}  // namespace
}  // namespace tandem::models
