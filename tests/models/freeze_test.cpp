#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/models/backbone.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

std::shared_ptr<Backbone> small(Norm norm = Norm::batch, bool zero_gamma = false) {
  return make({.name = "resnet_glyph", .size = 16, .embedding = 8, .norm = norm, .zero_gamma = zero_gamma});
}

std::string fault_of(const std::vector<std::string>& prefixes) {
  return test::text_of<SettingsError>([&] { freeze(*small(), prefixes); });
}

TEST(Freeze, TakesParametersByTheBeginningsOfTheirNames) {
  const auto model = small();
  freeze(*model, std::vector<std::string>{"conv1", "layer2", "layer3.0.bn2.weight"});
  for (const auto& entry : model->named_parameters()) {
    const auto& name = entry.key();
    const bool frozen = name == "conv1.weight" || name.starts_with("layer2.") || name == "layer3.0.bn2.weight";
    EXPECT_EQ(entry.value().requires_grad(), !frozen) << name;
  }
}

TEST(Freeze, OfAPartOfAModelOthersMayHaveTheNames) {
  const auto part = make({.name = "resnet_glyph", .size = 16, .embedding = 8, .blocks = {{0, 1}}});
  freeze_here(*part, std::vector<std::string>{"layer1", "layer2"});
  for (const auto& entry : part->named_parameters()) {
    EXPECT_EQ(entry.value().requires_grad(), !entry.key().starts_with("layer1.")) << entry.key();
  }
}

TEST(Freeze, GivesNoGradientsAndStillMovesStatistics) {
  const auto model = small();
  freeze(*model, std::vector<std::string>{"conv1", "bn1", "layer1"});
  model->forward(at::rand({4, 1, 16, 16})).sum().backward();
  for (const auto& entry : model->named_parameters()) {
    EXPECT_EQ(entry.value().grad().defined(), entry.value().requires_grad()) << entry.key();
  }
  EXPECT_EQ(model->named_buffers()["bn1.num_batches_tracked"].item<int64_t>(), 1);
}

std::vector<std::string> in_order(const Backbone& model) {
  std::vector<std::string> names;
  for (const auto& entry : model.named_parameters()) names.push_back(entry.key());
  return names;
}

/// Backward may begin to be needed at any operation of a block.
TEST(Freeze, TheOthersHaveTheirGradientsWhereverItEnds) {
  for (const auto norm : {Norm::batch, Norm::group, Norm::none, Norm::ghost, Norm::abn_leaky}) {
    const auto images = at::rand({4, 1, 16, 16});
    const auto whole = small(norm);
    whole->forward(images).square().sum().backward();
    const auto expected = whole->named_parameters();
    const auto names = in_order(*whole);
    for (size_t frozen = 1; frozen < names.size(); ++frozen) {
      const auto model = small(norm);
      freeze(*model, std::vector<std::string>(names.begin(), names.begin() + static_cast<int64_t>(frozen)));
      model->forward(images).square().sum().backward();
      for (const auto& entry : model->named_parameters()) {
        if (!entry.value().requires_grad()) continue;
        EXPECT_TRUE(at::allclose(entry.value().grad(), expected[entry.key()].grad(), 1e-3, 1e-4))
            << norm_names()[static_cast<size_t>(norm)] << " frozen to " << names[frozen - 1] << ": " << entry.key();
      }
    }
  }
}

TEST(Freeze, UnknownBeginningsAreNamed) {
  EXPECT_EQ(fault_of({"conv1", "layr2"}),
            "freeze has 'layr2', wanted the beginning of a parameter's name: did you mean layer2?");
  EXPECT_EQ(fault_of({"classifier"}),
            "freeze has 'classifier', wanted the beginning of a parameter's name: the model has names "
            "such as bn1");
  EXPECT_EQ(fault_of({""}),
            "freeze has '', wanted the beginning of a parameter's name: the model has names such as bn1");
}

TEST(ZeroGamma, ABlockStartsAsItsShortcut) {
  for (const auto norm : {Norm::batch, Norm::group, Norm::ghost, Norm::sync, Norm::abn_leaky}) {
    const auto zero = small(norm, true), plain = small(norm);
    for (const auto& entry : zero->named_parameters()) {
      const auto& name = entry.key();
      const bool is_last = name.starts_with("layer") && name.ends_with(".bn2.weight");
      const auto expected = plain->named_parameters()[name];
      EXPECT_TRUE(entry.value().equal(is_last ? at::zeros_like(expected) : expected)) << name;
    }
    zero->forward(at::rand({4, 1, 16, 16})).square().sum().backward();
    for (const auto& entry : zero->named_parameters()) {
      EXPECT_TRUE(entry.value().grad().isfinite().all().item<bool>()) << entry.key();
    }
  }
  const auto bottleneck = make({.name = "resnet50", .channels = 3, .zero_gamma = true});
  EXPECT_EQ(bottleneck->named_parameters()["layer1.0.bn3.weight"].abs().max().item<double>(), 0);
  EXPECT_EQ(bottleneck->named_parameters()["layer1.0.bn2.weight"].abs().min().item<double>(), 1);
  EXPECT_NO_THROW(small(Norm::none, true));
}

}  // namespace
}  // namespace tandem::models
