#include "tandem/models/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/models/backbone.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

using test::text_of;

int64_t count_parameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

bool same_weights(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto left = a.parameters(), right = b.parameters();
  return std::ranges::equal(left, right, [](const Tensor& x, const Tensor& y) { return x.equal(y); });
}

TEST(Model, CountsOfParametersAreTorchvisionsLessTheLastLayer) {
  const auto count = [](const char* name) {
    return count_parameters(*make({.name = name, .channels = 3, .embedding = 0}));
  };
  EXPECT_EQ(count("resnet18"), 11689512 - (512 * 1000 + 1000));
  EXPECT_EQ(count("resnet50"), 25557032 - (2048 * 1000 + 1000));
}

TEST(Model, AnEmbeddingAddsALinearMapAndItsNormalisation) {
  const auto with = make({.name = "resnet_glyph", .embedding = 100});
  const auto without = make({.name = "resnet_glyph", .embedding = 0});
  EXPECT_EQ(with->dim(), 100);
  EXPECT_EQ(without->dim(), 128 * 4 * 4);
  EXPECT_EQ(count_parameters(*with) - count_parameters(*without), 2048 * 100 + 2 * 100);
  EXPECT_TRUE(with->named_parameters().contains("embedding.weight"));
  EXPECT_TRUE(with->named_buffers().contains("embedding_bn.running_var"));
}

TEST(Model, CountersStayWholeInEveryPrecision) {
  for (const auto type : {at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto model = make({.name = "resnet_glyph", .embedding = 8});
    model->named_buffers()["bn1.num_batches_tracked"].fill_(70001);  // too many for float16
    model->to(type);
    model->to(at::Device(at::kCPU), type);
    for (const auto& buffer : model->named_buffers()) {
      const bool counts = buffer.key().ends_with("num_batches_tracked");
      EXPECT_EQ(buffer.value().scalar_type(), counts ? at::kLong : type) << buffer.key();
    }
    EXPECT_EQ(model->named_parameters()["bn1.weight"].scalar_type(), type);
    EXPECT_EQ(model->named_buffers()["bn1.num_batches_tracked"].item<int64_t>(), 70001);
  }
}

TEST(Model, OneSeedGivesOneSetOfWeights) {
  for (const auto name : {"mlp", "resnet_glyph"}) {
    const auto first = make({.name = name, .seed = 3});
    EXPECT_TRUE(same_weights(*first, *make({.name = name, .seed = 3}))) << name;
    EXPECT_FALSE(same_weights(*first, *make({.name = name, .seed = 4}))) << name;
  }
}

TEST(Model, ThreadsThatBuildAtOnceGetTheSameWeightsAndTouchNoSharedGenerator) {
  const auto reference = make({.name = "resnet_glyph"});
  const auto before = at::globalContext().defaultGenerator(at::kCPU).get_state();
  std::vector<std::shared_ptr<Backbone>> models(4);
  std::vector<std::thread> threads;
  for (auto& model : models) threads.emplace_back([&] { model = make({.name = "resnet_glyph"}); });
  for (auto& thread : threads) thread.join();
  for (const auto& model : models) EXPECT_TRUE(same_weights(*reference, *model));
  EXPECT_TRUE(before.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
}

TEST(Model, WeightsBeginAsTorchvisionsDo) {
  const auto model = make({.name = "resnet18", .channels = 3});
  const auto weights = model->named_parameters();
  const auto& conv = weights["layer3.0.conv2.weight"];  // 256 x 256 x 3 x 3: normal, variance 2 / fan-out
  EXPECT_NEAR(conv.std().item<double>(), std::sqrt(2.0 / (256 * 9)), 1e-4);
  EXPECT_NEAR(conv.mean().item<double>(), 0.0, 1e-4);
  const auto& linear = weights["embedding.weight"];
  EXPECT_LE(linear.abs().max().item<double>(), 1 / std::sqrt(512.0));
  EXPECT_NEAR(linear.std().item<double>(), 1 / std::sqrt(3 * 512.0), 3e-4);
  EXPECT_TRUE(weights["layer1.0.bn1.weight"].equal(at::ones({64})));
  EXPECT_TRUE(weights["layer1.0.bn1.bias"].equal(at::zeros({64})));
  EXPECT_TRUE(model->named_buffers()["bn1.running_var"].equal(at::ones({64})));
}

TEST(Model, UnknownNamesAreRefusedWithTheList) {
  EXPECT_EQ(text_of<SettingsError>([] { make({.name = "resnet19"}); }),
            "model is 'resnet19', wanted one of resnet_glyph, resnet18, resnet34, resnet50, vit_tiny, vit_small, "
            "vit_base, mlp, none, darts-v1, darts-v2, "
            "pc-darts, pc-darts-imagenet, p-darts, drnas, drnas-imagenet, nasnet, amoebanet");
  EXPECT_EQ(text_of<SettingsError>([] { norm_of("layer"); }),
            "norm is 'layer', wanted batch, group, none, abn-leaky, abn-elu, abn-swish, sync or ghost");
  EXPECT_EQ(norm_of("group"), Norm::group);
  EXPECT_TRUE(text_of<SettingsError>([] {
                make({.name = "mlp", .activation = "relu6"});
              }).starts_with("activation is 'relu6', wanted relu, leaky-relu, elu, "));
}

TEST(Model, OptionsOutOfRangeAreRefused) {
  EXPECT_EQ(text_of<SettingsError>([] { make({.name = "mlp", .channels = 0}); }),
            "the images' channels is 0, wanted 1..4096");
  EXPECT_EQ(text_of<SettingsError>([] { make({.name = "mlp", .size = -3}); }), "size is -3, wanted 1..4096");
  EXPECT_EQ(text_of<SettingsError>([] { make({.name = "mlp", .embedding = -1}); }), "embedding is -1, wanted 0..65536");
}

TEST(Model, ImagesOfAnotherShapeAreRefused) {
  const auto model = make({.name = "resnet_glyph"});
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              model->forward(at::zeros({2, 3, 32, 32}));
            }),
            "images: shape is [2, 3, 32, 32], wanted [N, 1, H, W]: build the model with as many channels as the "
            "images have");
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              model->forward(at::zeros({2, 1, 32, 28}));
            }),
            "images: shape is [2, 1, 32, 28], wanted 32 x 32 pixels: build the model with the images' size");
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              model->forward(at::zeros({2, 1, 32, 32}, at::kByte));
            }),
            "images: type is Byte, wanted a floating one: convert the pixels first");
  EXPECT_NE(text_of<c10::ValueError>([&] { make({.name = "mlp"})->forward(at::zeros({1024})); }), "nothing thrown");
}

TEST(Model, OneValueAChannelHasNoVariance) {
  EXPECT_EQ(text_of<c10::ValueError>([] {
              make({.name = "resnet_glyph"})->forward(at::ones({1, 1, 32, 32}));
            }),
            "batch normalisation: input is [1, 128], wanted more than one value a channel in training: raise the "
            "batch of each rank");
}

}  // namespace
}  // namespace tandem::models
