#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/memory/switch_activations.h"
#include "tandem/models/network/resnet.h"

namespace tandem::models {
namespace {

Tensor random_images(std::vector<int64_t> shape, at::ScalarType type = at::kFloat) {
  const auto images = at::empty(shape, type);
  fill_normal_(images, 1.0, 17, 1);
  return images;
}

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Forward, GivesOneEmbeddingAnImage) {
  for (const auto name : {"mlp", "resnet_glyph"}) {
    for (const int64_t channels : {1, 3}) {
      for (const int64_t embedding : {0, 24}) {
        const auto model = make({.name = name, .channels = channels, .embedding = embedding});
        const auto output = model->forward(random_images({2, channels, 32, 32}));
        EXPECT_EQ(output.sizes(), (std::vector<int64_t>{2, model->dim()})) << name;
        EXPECT_TRUE(embedding == 0 || model->dim() == embedding) << name;
        EXPECT_TRUE(output.isfinite().all().item<bool>()) << name;
      }
    }
  }
}

/// Each block with the names and the bits that it has in the whole, and nothing else.
TEST(Forward, BlocksThatAreBuiltAloneAreThoseOfTheWhole) {
  for (const ModelOptions& options :
       {ModelOptions{.name = "mlp", .activation = "gelu-merged"}, ModelOptions{.name = "mlp", .embedding = 0},
        ModelOptions{.name = "resnet_glyph", .zero_gamma = true}, ModelOptions{.name = "resnet50", .norm = Norm::group},
        ModelOptions{.name = "resnet18", .embedding = 0}, ModelOptions{.name = "vit_tiny", .patch = 8}}) {
    SCOPED_TRACE(options.name);
    const auto whole = make(options);
    const auto images = random_images({2, 1, 32, 32});
    const int64_t blocks = static_cast<int64_t>(whole->chain().blocks.size()), cut = blocks / 2;
    ASSERT_EQ(whole->num_blocks(), blocks);
    std::map<std::string, Tensor> expected, found;
    for (const auto& weight : whole->named_parameters()) expected[weight.key()] = weight.value();
    for (const auto& buffer : whole->named_buffers()) expected[buffer.key()] = buffer.value();
    memory::Chain chain;
    for (const auto& range : {BlockRange{0, cut - 1}, BlockRange{cut, cut}, BlockRange{cut + 1, blocks - 1}}) {
      if (range.first > range.last) continue;
      auto part_options = options;
      part_options.blocks = {range};
      const auto part = make(part_options);
      EXPECT_EQ(part->num_blocks(), blocks);
      ASSERT_EQ(static_cast<int64_t>(part->chain().blocks.size()), range.last - range.first + 1);
      for (const auto& block : part->chain().blocks) {
        EXPECT_EQ(block.name, whole->chain().blocks[chain.blocks.size()].name);
        chain.blocks.push_back(block);
      }
      for (const auto& weight : part->named_parameters())
        EXPECT_TRUE(found.emplace(weight.key(), weight.value()).second);
      for (const auto& buffer : part->named_buffers()) EXPECT_TRUE(found.emplace(buffer.key(), buffer.value()).second);
    }
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
    EXPECT_TRUE(memory::run(chain, images).equal(whole->forward(images)));
  }
}

/// A block is cut after its first part, or before its last.
TEST(Forward, PartsThatAreBuiltAloneAreThoseOfTheWhole) {
  for (const ModelOptions& options :
       {ModelOptions{.name = "resnet_glyph", .zero_gamma = true}, ModelOptions{.name = "resnet50", .norm = Norm::group},
        ModelOptions{.name = "vit_tiny", .patch = 8}}) {
    SCOPED_TRACE(options.name);
    const auto whole = make(options);
    const auto images = random_images({2, 1, 32, 32});
    const auto& blocks = whole->chain().blocks;
    const auto end = std::ssize(blocks) - 1;
    for (const int64_t cut : {int64_t{1}, end / 2, end - 1}) {
      for (const int64_t part : {int64_t{1}, std::ssize(blocks[cut].parts) - 1}) {
        size_t found = 0;
        memory::Chain chain;
        for (const auto& range : {BlockRange{0, cut, 0, part - 1}, BlockRange{cut, end, part}}) {
          auto part_options = options;
          part_options.blocks = {range};
          const auto some = make(part_options);
          for (const auto& weight : some->named_parameters()) {
            EXPECT_TRUE(weight.value().equal(whole->named_parameters()[weight.key()])) << weight.key();
            ++found;
          }
          for (const auto& block : some->chain(range).blocks) chain.blocks.push_back(block);
        }
        EXPECT_EQ(found, whole->named_parameters().size());
        EXPECT_EQ(std::ssize(chain.blocks), std::ssize(blocks) + 1);
        EXPECT_TRUE(memory::run(chain, images).equal(whole->forward(images))) << cut << '/' << part;
      }
    }
  }
}

/// Two stages on one rank may each have a part of the same block.
TEST(Forward, ABlockIsCutWhereAllOfItIsHere) {
  ModelOptions options = {.name = "resnet_glyph"};
  options.blocks = {{0, 1, 0, 0}, {1, 4, 1}};
  const auto model = make(options);
  const auto images = random_images({2, 1, 32, 32});
  auto chain = model->chain(options.blocks[0]);
  for (const auto& block : model->chain(options.blocks[1]).blocks) chain.blocks.push_back(block);
  EXPECT_EQ(chain.blocks.size(), model->chain().blocks.size() + 1);
  EXPECT_TRUE(memory::run(chain, images).equal(model->forward(images)));
}

TEST(Forward, BlocksThatTheModelDoesNotHaveAreRefused) {
  const auto fault = [](const BlockRange& range) {
    try {
      make({.name = "mlp", .blocks = {range}});
    } catch (const SettingsError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(fault({2, 2}), "");
  EXPECT_EQ(fault({1, 3}), "last block is 3, wanted 1..2");
  EXPECT_EQ(fault({2, 1}), "last block is 1, wanted 2..2");
  EXPECT_EQ(fault({-1, 1}), "first block is -1, wanted 0..2");
}

TEST(Forward, WithoutBatchStatisticsASplitBatchGivesTheSame) {
  for (const ModelOptions& options :
       {ModelOptions{.name = "mlp"}, ModelOptions{.name = "resnet_glyph", .norm = Norm::group},
        ModelOptions{.name = "resnet_glyph", .norm = Norm::none}}) {
    const auto model = make(options);
    model->to(at::kDouble);
    const auto images = random_images({5, 1, 32, 32}, at::kDouble);
    const auto whole = model->forward(images);
    const auto parts = at::cat({model->forward(images.slice(0, 0, 2)), model->forward(images.slice(0, 2))});
    EXPECT_LT(distance(whole, parts), 1e-12) << options.name;
    EXPECT_GT(distance(whole[0], whole[1]), 1e-3) << options.name;
  }
}

TEST(Forward, AnotherActivationOfAModelOrASwitchedOneGivesTheSame) {
  const auto images = random_images({3, 1, 32, 32});
  for (const auto name : {"mlp", "resnet_glyph"}) {
    for (const auto norm : {Norm::batch, Norm::group, Norm::none}) {
      const auto rectified = make({.name = name, .norm = norm});
      const auto made = make({.name = name, .norm = norm, .activation = "gelu-fused"});
      const auto before = rectified->forward(images);
      EXPECT_GT(memory::switch_activations(*rectified, memory::activation_of("gelu-fused")), 0);
      EXPECT_TRUE(rectified->forward(images).equal(made->forward(images))) << name;
      EXPECT_GT(distance(before, made->forward(images)), 1e-3) << name;
      EXPECT_EQ(made->named_parameters().keys(), rectified->named_parameters().keys()) << name;
    }
  }
}

TEST(Forward, TheFormsOfAnActivationAreOneFunction) {
  const auto images = random_images({3, 1, 32, 32}, at::kDouble);
  std::vector<Tensor> gradients;
  for (const auto* activation : {"swish-naive", "swish-merged", "swish-fused"}) {
    const auto model = make({.name = "resnet_glyph", .activation = activation});
    model->to(at::kDouble);
    model->forward(images).square().sum().backward();
    gradients.push_back(model->named_parameters()["conv1.weight"].grad());
  }
  EXPECT_LT(distance(gradients[0], gradients[1]), 1e-9);
  EXPECT_LT(distance(gradients[0], gradients[2]), 1e-9);
}

TEST(Forward, AnInPlaceNormEqualsBatchNormAndItsActivation) {
  const std::map<Norm, const char*> pairs = {
      {Norm::abn_leaky, "leaky-relu"}, {Norm::abn_elu, "elu"}, {Norm::abn_swish, "swish-naive"}};
  const auto images = random_images({3, 1, 32, 32}, at::kDouble);
  for (const auto& [norm, activation] : pairs) {
    const auto in_place = make({.name = "resnet_glyph", .norm = norm});
    const auto separate = make({.name = "resnet_glyph", .activation = activation});
    EXPECT_EQ(in_place->named_buffers().keys(), separate->named_buffers().keys());
    for (const auto& model : {in_place, separate}) {
      model->to(at::kDouble);
      const at::NoGradGuard no_grad;
      for (auto& weights : model->named_parameters()) {  // as a given model could have them
        if (weights.key().find("bn1.weight") != std::string::npos) weights.value().slice(0, 0, 5).neg_();
      }
    }
    const auto a = in_place->forward(images), b = separate->forward(images);
    EXPECT_LT(distance(a, b), 1e-9);
    a.square().sum().backward();
    b.square().sum().backward();
    const auto others = separate->named_parameters();
    for (const auto& weights : in_place->named_parameters()) {
      const auto& other = others[weights.key()];
      EXPECT_LT(distance(weights.value().grad(), other.grad()), 1e-7) << weights.key();
    }
    in_place->eval();
    separate->eval();
    EXPECT_LT(distance(in_place->forward(images), separate->forward(images)), 1e-9);
    EXPECT_THROW(memory::switch_activations(*in_place, memory::activation_of("relu")), c10::ValueError);
  }
}

TEST(Forward, Float32RunsChannelsLastAndAgreesWithFloat64) {
  for (const int64_t channels : {1, 3}) {
    const auto model = make({.name = "resnet_glyph", .channels = channels});
    const auto images = random_images({8, channels, 32, 32});
    const auto stem = model->chain().blocks[0].forward({images})[0];
    EXPECT_TRUE(stem.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_FALSE(stem.is_contiguous());
    const auto single = model->forward(images);
    model->to(at::kDouble);
    EXPECT_LT(distance(single, model->forward(images.to(at::kDouble))), 1e-4);
  }
}

TEST(Forward, AChainOutlivesItsModel) {
  const auto images = random_images({4, 1, 32, 32});
  for (const auto& [name, wanted] : std::map<std::string, std::vector<std::string>>{
           {"resnet_glyph", {"stem", "layer1.0", "layer2.0", "layer3.0", "head"}},
           {"mlp", {"fc1", "fc2", "embedding"}},
           {"none", {"flat"}}}) {
    auto model = make({.name = name, .embedding = name == "none" ? 1024 : 16});
    const auto chain = model->chain();
    std::vector<std::string> names;
    for (const auto& block : chain.blocks) names.push_back(block.name);
    EXPECT_EQ(names, wanted);
    int64_t held = 0, all = 0;
    for (const auto& block : chain.blocks) {
      for (const auto& module : block.modules) held += static_cast<int64_t>(module->parameters().size());
    }
    all = static_cast<int64_t>(model->parameters().size());
    EXPECT_EQ(held, all) << name;
    const auto whole = model->forward(images);
    model.reset();
    EXPECT_TRUE(memory::run(chain, images).equal(whole)) << name;
  }
}

TEST(Forward, ARankWithoutSamplesGetsZeroGradientsAndKeepsItsStatistics) {
  for (const auto name : {"mlp", "resnet_glyph"}) {
    const auto model = make({.name = name});
    const auto output = model->forward(at::empty({0, 1, 32, 32}));
    EXPECT_EQ(output.sizes(), (std::vector<int64_t>{0, 128})) << name;
    output.sum().backward();
    for (const auto& entry : model->named_parameters()) {
      ASSERT_TRUE(entry.value().grad().defined()) << name << " " << entry.key();
      EXPECT_TRUE(entry.value().grad().eq(0).all().item<bool>()) << name << " " << entry.key();
    }
    for (const auto& entry : model->named_buffers()) {
      const double start = entry.key().ends_with("running_var") ? 1.0 : 0.0;
      EXPECT_TRUE(entry.value().eq(start).all().item<bool>()) << name << " " << entry.key();
    }
  }
}

TEST(Forward, GradientsReachTheImages) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto model = make({.name = "resnet_glyph"});
    model->to(type);
    const auto images = random_images({3, 1, 32, 32}, type).requires_grad_();
    model->forward(images).square().sum().backward();
    EXPECT_GT(images.grad().abs().sum().item<double>(), 0.0);
  }
}

TEST(Forward, RoundsProductsToBfloat16) {
  const auto images = random_images({16, 1, 32, 32});
  const auto exact = make({.name = "resnet_glyph"})->forward(images);
  const auto model = make({.name = "resnet_glyph", .products = at::kBFloat16});
  const auto rounded = model->forward(images);
  EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
  rounded.to(at::kFloat).square().sum().backward();
  EXPECT_LT(distance(exact, rounded.to(at::kFloat)), 0.2);
  EXPECT_EQ(model->parameters()[0].grad().scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace tandem::models
