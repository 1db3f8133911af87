#include "tandem/layers/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/context.h"
#include "tandem/models/backbone.h"
#include "tandem/models/network/drop_path.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

using layers::Dropout;

Tensor dropped(const Dropout& layer, int64_t first, int64_t samples, int64_t step = 0, uint64_t seed = 1) {
  const ContextScope scope({.seed = seed, .step = step, .first_sample = first});
  return layer.forward(at::ones({samples, 40}, at::kDouble));
}

TEST(Dropout, DropsThatPartAndScalesTheRest) {
  const Dropout layer(0.25, "layer");
  const auto y = dropped(layer, 0, 1000);
  const double part = y.eq(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(part, 0.25, 0.01);  // of 40,000: five deviations
  EXPECT_TRUE(y.masked_select(y.ne(0)).allclose(at::full({}, 1 / 0.75, at::kDouble), 1e-6));
}

TEST(Dropout, DependsOnTheSampleAloneHoweverTheBatchIsSplit) {
  const Dropout layer(0.5, "layer");
  const auto whole = dropped(layer, 0, 7);
  EXPECT_TRUE(at::cat({dropped(layer, 0, 3), dropped(layer, 3, 4)}).equal(whole));
  EXPECT_TRUE(dropped(layer, 0, 7).equal(whole)) << "a second forward";
  EXPECT_FALSE(dropped(layer, 0, 7, 1).equal(whole)) << "another step";
  EXPECT_FALSE(dropped(layer, 0, 7, 0, 2).equal(whole)) << "another seed";
  EXPECT_FALSE(dropped(Dropout(0.5, "other"), 0, 7).equal(whole)) << "another layer";
}

TEST(Dropout, LeavesItsInputInEvaluationAndWithRateZero) {
  Dropout layer(0.5, "layer"), none(0, "none");
  const auto x = at::rand({3, 4});
  EXPECT_TRUE(none.forward(x).is_same(x));
  layer.eval();
  EXPECT_TRUE(layer.forward(x).is_same(x));
}

TEST(Dropout, TheGradientHasTheSameMask) {
  const Dropout layer(0.5, "layer");
  const auto x = at::ones({5, 6}, at::kDouble).requires_grad_();
  const auto y = layer.forward(x);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
}

TEST(Dropout, AWrongRateIsRefused) {
  EXPECT_EQ(test::text_of<c10::ValueError>([] { Dropout(1.0, "layer"); }).substr(0, 50),
            "dropout is 1, wanted 0 or more and below 1");
}

TEST(Dropout, IsPartOfTheModelsThatHaveIt) {
  for (const char* name : {"mlp", "resnet_glyph"}) {
    const auto plain = make({.name = name}), with = make({.name = name, .dropout = 0.5});
    const auto images = at::rand({4, 1, 32, 32});
    EXPECT_FALSE(with->forward(images).equal(plain->forward(images))) << name;
    plain->eval(), with->eval();
    for (const auto& model : {plain, with}) {
      for (auto& buffer : model->named_buffers()) {
        if (buffer.key().ends_with("running_mean")) buffer.value().zero_();
        if (buffer.key().ends_with("running_var")) buffer.value().fill_(1);
      }
    }
    EXPECT_TRUE(with->forward(images).equal(plain->forward(images))) << name;
  }
}

/// After this share of training.
Tensor masks_at(double progress, const DropPath& paths, int64_t first, int64_t samples, int64_t step = 0) {
  const ContextScope scope({.seed = 1, .step = step, .first_sample = first, .progress = progress});
  return paths.masks(20, samples, at::kDouble);
}

TEST(DropPath, DropsMoreAndMoreOfALayersOutputsAsAWhole) {
  const DropPath paths(0.4, "cell");
  EXPECT_TRUE(masks_at(0, paths, 0, 3).equal(at::ones({20, 3, 1, 1, 1}, at::kDouble))) << "of the same bytes";
  for (const double progress : {0.25, 0.5, 1.0}) {
    const double rate = 0.4 * progress;
    const auto masks = masks_at(progress, paths, 0, 2000);
    EXPECT_NEAR(masks.eq(0).to(at::kDouble).mean().item<double>(), rate, 0.012);  // of 40,000: five deviations
    EXPECT_TRUE(masks.masked_select(masks.ne(0)).allclose(at::full({}, 1 / (1 - rate), at::kDouble), 1e-6));
  }
}

TEST(DropPath, DependsOnTheSampleAloneHoweverTheBatchIsSplit) {
  const DropPath paths(0.5, "cell");
  const auto whole = masks_at(0.9, paths, 0, 7);
  EXPECT_TRUE(at::cat({masks_at(0.9, paths, 0, 3), masks_at(0.9, paths, 3, 4)}, 1).equal(whole));
  EXPECT_FALSE(masks_at(0.9, paths, 0, 7, 1).equal(whole)) << "another step";
  EXPECT_FALSE(masks_at(0.9, DropPath(0.5, "other"), 0, 7).equal(whole)) << "another cell";
}

TEST(DropPath, DropsNothingInEvaluationAndWithRateZero) {
  DropPath paths(0.5, "cell"), none(0, "none");
  EXPECT_FALSE(masks_at(0.9, none, 0, 3).defined());
  paths.eval();
  EXPECT_FALSE(masks_at(0.9, paths, 0, 3).defined());
  EXPECT_EQ(test::text_of<c10::ValueError>([] { DropPath(1.0, "cell"); }).substr(0, 45),
            "drop path is 1, wanted 0 or more and below 1");
}

TEST(DropPath, ACellDropsItsOperationsButNotItsIdentities) {
  const char* const sums =
      "Genotype(normal=[[('skip_connect', 0), ('avg_pool_3x3', 1)]], normal_concat=[2], "
      "reduce=[[('avg_pool_3x3', 0), ('avg_pool_3x3', 1)]], reduce_concat=[2])";
  const ModelOptions plain = {
      .name = sums, .channels = 1, .size = 8, .embedding = 0, .norm = Norm::none, .cells = 3, .cell_channels = 2};
  auto dropping = plain;
  dropping.drop_path = 0.5;
  const auto with = make(dropping), without = make(plain);
  const auto images = at::rand({1, 1, 8, 8}).expand({50, 1, 8, 8});
  const ContextScope scope({.seed = 3, .progress = 1});
  memory::Chain first{{without->chain().blocks.begin(), without->chain().blocks.begin() + 2}};
  memory::Chain first_with{{with->chain().blocks.begin(), with->chain().blocks.begin() + 2}};
  const auto whole = memory::run(first, memory::Flow{images})[0],
             dropped = memory::run(first_with, memory::Flow{images})[0];
  const auto kinds = std::get<0>(at::unique_dim(dropped, 0));  // with the pooled value twice, and without it
  ASSERT_EQ(kinds.size(0), 2);
  EXPECT_TRUE(kinds.mean({0}).allclose(whole[0], 1e-5, 1e-6));
}

}  // namespace
}  // namespace tandem::models
