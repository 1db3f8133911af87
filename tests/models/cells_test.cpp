#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/models/genotype.h"
#include "tests/models/oracle_model.h"

namespace tandem::models {
namespace {

struct Case {
  std::string name;
  ModelOptions options;
};

/// All operations, nodes of one and of three edges, outputs that are not the last nodes.
constexpr const char* kEverything =
    "Genotype(normal=[[('sep_conv_5x5', 1)], [('none', 0), ('nor_conv_1x1', 1), ('nor_conv_3x3', 2)], "
    "[('dil_conv_5x5', 3), ('conv_7x1_1x7', 0)]], normal_concat=[4, 1, 2], "
    "reduce=[[('conv_7x1_1x7', 1), ('sep_conv_7x7', 0)], [('nor_conv_3x3', 0), ('none', 1), ('dil_conv_3x3', 2)], "
    "[('skip_connect', 1), ('avg_pool_3x3', 0), ('nor_conv_1x1', 0)]], reduce_concat=[4, 3])";

const std::vector<Case> kCases = {
    {"v2", {.name = "darts-v2", .channels = 3, .size = 16, .embedding = 0, .cells = 5, .cell_channels = 4}},
    {"nasnet", {.name = "nasnet", .channels = 1, .size = 12, .embedding = 0, .cells = 4, .cell_channels = 6}},
    {"amoebanet", {.name = "amoebanet", .channels = 3, .size = 8, .embedding = 0, .cells = 3, .cell_channels = 4}},
    {"everything", {.name = kEverything, .channels = 3, .size = 16, .embedding = 0, .cells = 6, .cell_channels = 5}},
    {"imagenet",
     {.name = "pc-darts-imagenet",
      .channels = 3,
      .size = 64,
      .embedding = 0,
      .cells = 3,
      .cell_channels = 4,
      .stem = Stem::imagenet}},
    {"search_darts",
     {.name = "search:darts", .channels = 3, .size = 8, .embedding = 0, .cells = 3, .cell_channels = 4}},
    {"search_s2", {.name = "search:s2", .channels = 1, .size = 12, .embedding = 0, .cells = 5, .cell_channels = 5}},
    {"search_s3", {.name = "search:s3", .channels = 3, .size = 16, .embedding = 0, .cells = 4, .cell_channels = 6}},
    {"search_imagenet",
     {.name = "search:s3",
      .channels = 3,
      .size = 64,
      .embedding = 0,
      .cells = 3,
      .cell_channels = 4,
      .stem = Stem::imagenet}}};

const test::OracleAnswer& oracle() {
  static const auto answer = [] {
    std::vector<std::string> arguments;
    for (const auto& [name, options] : kCases) {
      const auto* known = known_genotype(options.name);
      auto text = known != nullptr ? to_text(*known, GenotypeForm::nested) : options.name;
      std::ranges::replace(text, '\'', '"');  // for the shell
      arguments.insert(arguments.end(), {name, text, std::to_string(options.channels), std::to_string(options.size),
                                         std::to_string(options.cells), std::to_string(options.cell_channels),
                                         options.stem == Stem::cifar ? "cifar" : "imagenet"});
    }
    return test::ask_python("cells.py", arguments);
  }();
  return answer;
}

class Cells : public testing::TestWithParam<Case> {};

TEST_P(Cells, NamesShapesOutputsAndGradientsAreEqual) {
  if (oracle().missing) GTEST_SKIP() << "no oracle: " << oracle().text;
  test_oracle::expect_equal(*make(GetParam().options), oracle(), GetParam().name);
}

/// Of five parameters from the first to the last.
TEST_P(Cells, AWeightThatIs1e9OffIsSeen) {
  if (oracle().missing) GTEST_SKIP() << "no oracle: " << oracle().text;
  const auto& [name, options] = GetParam();
  const auto model = make(options);
  const auto keys = model->named_parameters().keys();
  for (size_t part = 0; part <= 4; ++part) {
    const auto& key = keys[part * (keys.size() - 1) / 4];
    test_oracle::give_weights(*model, oracle(), name);
    test_oracle::move_weight(*model, oracle(), name, key, 1e-9);
    EXPECT_NE(test_oracle::differences(*model, oracle(), name), std::vector<std::string>()) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Cells, testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::models
