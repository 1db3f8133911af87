#include "tandem/models/network/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/context.h"
#include "tandem/models/backbone.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

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

}  // namespace
}  // namespace tandem::models
