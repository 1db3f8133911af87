#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/layers/placed.h"
#include "tandem/models/backbone.h"
#include "tests/support/text_of.h"

// Models whose layers are divided over the ranks of the axis tensor.
namespace tandem::models {
namespace {

using parallel::Parameter;

constexpr int kSteps = 10;

struct Case {
  const char* what;
  ModelOptions options;
  int64_t images = 4;
  std::vector<int> ranks = {2, 3};
};

std::vector<Case> cases() {
  const ModelOptions glyph = {.name = "resnet_glyph", .size = 16, .embedding = 10};
  const auto with = [](ModelOptions options, auto change) {
    change(options);
    return options;
  };
  return {
      {"resnet_glyph", glyph, 4, {2, 3, 5}},
      {"resnet_glyph, groups", with(glyph, [](auto& o) { o.norm = Norm::group; }), 3, {2}},
      {"resnet_glyph without an embedding", with(glyph, [](auto& o) { o.embedding = 0; })},
      {"resnet_glyph, zero_gamma, dropout", with(glyph, [](auto& o) { o.zero_gamma = true, o.dropout = 0.3; })},
      {"resnet_glyph, no norm", with(glyph, [](auto& o) { o.norm = Norm::none; })},
      {"resnet_glyph, abn", with(glyph, [](auto& o) { o.norm = Norm::abn_elu; })},
      {"resnet_glyph, ghost", with(glyph, [](auto& o) { o.norm = Norm::ghost, o.ghost = 3; }), 6},
      {"resnet50", {.name = "resnet50", .channels = 3, .size = 32, .embedding = 6, .norm = Norm::group}, 2},
      {"vit_tiny",
       {.name = "vit_tiny",
        .size = 12,
        .embedding = 7,
        .norm = Norm::group,
        .activation = "gelu-fused",
        .patch = 6,
        .dropout = 0.2},
       3},
      {"vit_tiny, 6 heads", {.name = "vit_tiny", .size = 12, .embedding = 0, .patch = 6, .heads = 6}, 2, {4}},
      {"vit_tiny, tokens",
       {.name = "vit_tiny", .size = 12, .embedding = 0, .patch = 6, .divides_tokens = true},
       2,
       {2, 3}},
      {"mlp", {.name = "mlp", .size = 6, .embedding = 5, .dropout = 0.4}, 4, {2, 5}},
  };
}

std::shared_ptr<Backbone> made(const ModelOptions& options) {
  auto model = make(options);
  model->to(at::kDouble);
  return model;
}

Tensor images_of(const Case& test) {
  const auto& options = test.options;
  const int64_t count = test.images * options.channels * options.size * options.size;
  return at::sin(at::arange(count, at::kDouble) * 1.7)
      .view({test.images, options.channels, options.size, options.size});
}

/// Outputs of each step, then the gradients of the first, then all weights and buffers.
struct Trained {
  std::vector<Tensor> outputs;
  std::map<std::string, Tensor> gradients, weights;
};

/// `parts`: where what this rank has lies in the whole.
Trained train(Backbone& model, const Case& test, const std::vector<Parameter>& parameters,
              const std::vector<Parameter>& buffers) {
  Trained trained;
  const auto x = images_of(test);
  for (int step = 0; step < kSteps; ++step) {
    const ContextScope scope({.seed = 5, .step = step});
    const auto y = model.forward(x);
    trained.outputs.push_back(y.detach().clone());
    (y * at::cos(at::arange(y.numel(), at::kDouble)).view_as(y)).mean().backward();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto tensor = parameters[i].tensor;
      const auto key = parameters[i].name + "#" + std::to_string(i);
      if (step == 0) trained.gradients[key] = tensor.grad().clone();
      tensor.sub_(tensor.grad() * 0.02);
      tensor.mutable_grad() = Tensor();
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    trained.weights[parameters[i].name + "#" + std::to_string(i)] = parameters[i].tensor.detach().clone();
  }
  for (const auto& buffer : buffers) trained.weights[buffer.name] = buffer.tensor.clone();
  return trained;
}

bool are_equal(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a.to(at::kDouble), b.to(at::kDouble), 1e-11, 1e-12);
}

Tensor part_of(Tensor whole, const parallel::Placement& placement) {
  for (const auto& split : placement.splits) whole = whole.narrow(split.dim, split.first, split.count);
  return whole;
}

TEST(DividedModel, IsThatOfOneDevice) {
  for (const auto& test : cases()) {
    SCOPED_TRACE(test.what);
    const auto alone = made(test.options);
    const auto single = comm::make_single_group();
    const parallel::Mesh mesh_of_one({}, *single);
    const auto whole_parameters = layers::parameters_of(*alone, mesh_of_one);
    const auto expected = train(*alone, test, whole_parameters, layers::buffers_of(*alone, mesh_of_one));
    std::map<std::string, std::pair<Tensor, Tensor>> whole;  // gradients and weights by name
    for (size_t i = 0; i < whole_parameters.size(); ++i) {
      const auto key = whole_parameters[i].name + "#" + std::to_string(i);
      whole[whole_parameters[i].name] = {expected.gradients.at(key), expected.weights.at(key)};
    }
    for (const int ranks : test.ranks) {
      comm::run_ranks(
          ranks,
          [&](comm::ProcessGroup& world) {
            parallel::Mesh mesh({.tensor = ranks}, world);
            auto options = test.options;
            options.tensor = &mesh.group(parallel::Axis::tensor);
            const auto model = made(options);
            const auto parameters = layers::parameters_of(*model, mesh);
            const auto buffers = layers::buffers_of(*model, mesh);
            const auto own = train(*model, test, parameters, buffers);
            for (int step = 0; step < kSteps; ++step) {
              EXPECT_TRUE(are_equal(own.outputs[step], expected.outputs[step])) << "step " << step;
            }
            int64_t divided = 0;
            for (size_t i = 0; i < parameters.size(); ++i) {
              const auto& [name, tensor, placement] = parameters[i];
              const auto key = name + "#" + std::to_string(i);
              EXPECT_TRUE(are_equal(own.gradients.at(key), part_of(whole.at(name).first, placement))) << name;
              EXPECT_TRUE(are_equal(own.weights.at(key), part_of(whole.at(name).second, placement))) << name;
              divided += placement.splits.empty() ? 0 : 1;
            }
            EXPECT_GT(divided, 0);
            for (const auto& buffer : buffers) {
              EXPECT_TRUE(are_equal(buffer.tensor, part_of(expected.weights.at(buffer.name), buffer.placement)))
                  << buffer.name;
            }
          },
          {.threads = 1});
    }
  }
}

TEST(DividedModel, ALayerWithoutPartsForAllRanksIsRefusedByName) {
  comm::run_ranks(4, [&](comm::ProcessGroup& group) {
    const auto refusal = [&](ModelOptions options) {
      options.tensor = &group;
      return test::text_of<SettingsError>([&] { make(options); });
    };
    const std::string remedy = ": divide the model over fewer ranks, and the batch over more";
    EXPECT_EQ(refusal({.name = "vit_tiny"}),
              "tensor is 4 with layer blocks.0.attn of vit_tiny (heads: 3), wanted at most 3" + remedy);
    EXPECT_EQ(refusal({.name = "resnet_glyph", .norm = Norm::group}),
              "tensor is 4 with layer layer1.0 of resnet_glyph (groups of channels: 2), wanted at most 2" + remedy);
    EXPECT_EQ(refusal({.name = "darts-v2"}), "tensor is 4 with layer stem of darts-v2, which is not divided, wanted 1");
  });
}

TEST(DividedModel, ARankHasItsPartOfTheWeights) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    const auto numbers = [](const Backbone& model) {
      int64_t sum = 0;
      for (const auto& parameter : model.parameters()) sum += parameter.numel();
      return sum;
    };
    const auto expect = [&](ModelOptions options, int64_t whole_part, int64_t divided_part) {
      EXPECT_EQ(numbers(*make(options)), whole_part + divided_part) << options.name;
      options.tensor = &group;
      EXPECT_EQ(numbers(*make(options)), whole_part + divided_part / 2) << options.name;
    };
    // Of a block 12 D^2 weights and 7 D biases are divided; 6 D are whole: norms, and biases of proj
    // and fc2.
    const int64_t width = 384, tokens = 1 + 4;
    expect({.name = "vit_small", .size = 32, .embedding = 0},
           width * (16 * 16 + 1) + width * (tokens + 1) + 12 * 6 * width + 2 * width,
           12 * (12 * width * width + 7 * width));
  });
}

}  // namespace
}  // namespace tandem::models
