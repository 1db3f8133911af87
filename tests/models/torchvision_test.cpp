#include <gtest/gtest.h>

#include "tests/models/oracle_model.h"

namespace tandem::models {
namespace {

const std::vector<ModelOptions> kCases = {{.name = "resnet_glyph", .channels = 1, .size = 30, .embedding = 24},
                                          {.name = "resnet18", .channels = 1, .size = 40, .embedding = 16},
                                          {.name = "resnet34", .channels = 3, .size = 33, .embedding = 0},
                                          {.name = "resnet50", .channels = 3, .size = 64, .embedding = 0}};

/// Asked once for all cases: to start Python takes longer than to run the models.
const test::OracleAnswer& oracle() {
  static const auto answer = [] {
    std::vector<std::string> arguments;
    for (const auto& options : kCases) {
      arguments.push_back(options.name + "," + std::to_string(options.channels) + "," + std::to_string(options.size) +
                          "," + std::to_string(options.embedding));
    }
    return test::ask_python("resnet.py", arguments);
  }();
  return answer;
}

class Torchvision : public testing::TestWithParam<ModelOptions> {};

TEST_P(Torchvision, NamesShapesOutputsAndGradientsAreEqual) {
  if (oracle().missing) GTEST_SKIP() << "no oracle: " << oracle().text;
  test_oracle::expect_equal(*make(GetParam()), oracle(), GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Models, Torchvision, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::models
