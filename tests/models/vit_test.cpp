#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/models/positions.h"
#include "tests/models/oracle_model.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

const std::vector<ModelOptions> kCases = {
    {.name = "vit_tiny", .size = 16, .width = 24, .embedding = 0, .activation = "gelu-fused", .patch = 4},
    {.name = "vit_small",
     .channels = 3,
     .size = 12,
     .embedding = 10,
     .activation = "gelu-fused",
     .patch = 3,
     .heads = 4},
    {.name = "vit_base", .channels = 3, .size = 32, .embedding = 0, .activation = "gelu-fused"}};

const test::OracleAnswer& oracle() {
  static const auto answer = [] {
    std::vector<std::string> arguments;
    for (const auto& options : kCases) {
      arguments.push_back(options.name);
      for (const auto number :
           {options.channels, options.size, options.columns(), options.patch, options.heads, options.embedding}) {
        arguments.back() += "," + std::to_string(number);
      }
    }
    return test::ask_python("vit.py", arguments);
  }();
  return answer;
}

class Timm : public testing::TestWithParam<ModelOptions> {};

TEST_P(Timm, NamesShapesOutputsAndGradientsAreEqual) {
  if (oracle().missing) GTEST_SKIP() << "no oracle: " << oracle().text;
  test_oracle::expect_equal(*make(GetParam()), oracle(), GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Models, Timm, testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

int64_t count(const std::string& name) {
  int64_t numbers = 0;
  for (const auto& parameter : make({.name = name, .channels = 3, .size = 224, .embedding = 0})->parameters()) {
    numbers += parameter.numel();
  }
  return numbers;
}

/// As published for ImageNet, without the last layer of 1,000 classes.
TEST(ViT, HasAsManyParametersAsPublished) {
  EXPECT_EQ(count("vit_tiny"), 5'717'416 - 193 * 1000);
  EXPECT_EQ(count("vit_small"), 22'050'664 - 385 * 1000);
  EXPECT_EQ(count("vit_base"), 86'567'656 - 769 * 1000);
}

std::string refusal(const ModelOptions& options) {
  return test::text_of<SettingsError>([&] { make(options); });
}

TEST(ViT, OptionsThatDoNotServe) {
  EXPECT_EQ(refusal({.name = "vit_tiny", .size = 32, .width = 40}),
            "size is 40 with patch=16, wanted a multiple of it");
  EXPECT_EQ(refusal({.name = "vit_tiny", .size = 32, .heads = 5}),
            "heads is 5, wanted a divisor of 192, the width of vit_tiny");
  EXPECT_EQ(refusal({.name = "vit_tiny", .size = 32, .patch = 0}), "patch is 0, wanted 1..1024");
  const auto model = make({.name = "vit_tiny", .size = 32});
  EXPECT_THROW(model->forward(at::rand({2, 1, 48, 32})), c10::ValueError);
}

TEST(Positions, OfAnotherGridAreThoseOfTimm) {
  if (oracle().missing) GTEST_SKIP() << "no oracle: " << oracle().text;
  const auto& tensors = oracle().tensors;
  const auto stored = tensors.at("positions/stored");
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 5}, {8, 8}, {1, 2}}) {
    const auto name = "positions/" + std::to_string(rows) + "x" + std::to_string(columns);
    const auto ours = resampled_positions(stored, rows, columns);
    ASSERT_EQ(ours.sizes(), tensors.at(name).sizes());
    EXPECT_LE((ours - tensors.at(name)).abs().max().item<double>(), 1e-6);
  }
  EXPECT_FALSE(can_be_resampled({1, 7, 8}, {1, 5, 8}));
  EXPECT_FALSE(can_be_resampled({1, 10, 8}, {1, 5, 6}));
  EXPECT_TRUE(can_be_resampled({1, 10, 8}, {1, 5, 8}));
}

TEST(ViT, ImagesOfABatchDoNotMeet) {
  const auto model = make({.name = "vit_small", .size = 16, .embedding = 0, .patch = 4});
  model->to(at::kDouble);
  const auto images = at::rand({5, 1, 16, 16}, at::kDouble);
  const auto all = model->forward(images);
  for (int64_t i = 0; i < 5; ++i) EXPECT_TRUE(at::allclose(model->forward(images.slice(0, i, i + 1))[0], all[i]));
  EXPECT_EQ(model->forward(images.slice(0, 0, 0)).sizes(), at::IntArrayRef({0, 384}));
}

}  // namespace
}  // namespace tandem::models
