#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/models/backbone.h"
#include "tests/support/python.h"

namespace tandem::models {
namespace {

constexpr int64_t kSamples = 2000;  // entries of a gradient that the oracle keeps

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

class Torchvision : public testing::TestWithParam<ModelOptions> {
 protected:
  void SetUp() override {
    if (oracle().missing) GTEST_SKIP() << "no oracle: " << oracle().text;
  }

  const Tensor& expected(const std::string& key) const { return oracle().tensors.at(GetParam().name + "/" + key); }
};

/// Every entry of the model that has a name in a file of weights.
std::map<std::string, Tensor> state_of(const torch::nn::Module& model) {
  std::map<std::string, Tensor> state;
  for (const auto& entry : model.named_parameters()) state[entry.key()] = entry.value();
  for (const auto& entry : model.named_buffers()) state[entry.key()] = entry.value();
  return state;
}

void load_state(const torch::nn::Module& model, const std::string& name) {
  const at::NoGradGuard no_grad;
  const auto state = state_of(model);
  const auto prefix = name + "/state.";
  size_t entries = 0;
  for (const auto& [key, value] : oracle().tensors) {
    if (!key.starts_with(prefix)) continue;
    ++entries;
    const auto own = state.find(key.substr(prefix.size()));
    ASSERT_NE(own, state.end()) << "torchvision has " << key << ", the model has not";
    ASSERT_EQ(own->second.sizes(), value.sizes()) << key;
    own->second.copy_(value);
  }
  EXPECT_EQ(entries, state.size()) << "the model has entries that torchvision has not";
}

void expect_close(const Tensor& ours, const Tensor& theirs, const std::string& what) {
  const double scale = theirs.abs().max().item<double>();
  EXPECT_LE((ours - theirs).abs().max().item<double>(), 1e-11 * std::max(scale, 1.0)) << what;
}

TEST_P(Torchvision, NamesShapesOutputsAndGradientsAreEqual) {
  const auto model = make(GetParam());
  ASSERT_NO_FATAL_FAILURE(load_state(*model, GetParam().name));
  model->to(at::kDouble);

  const auto output = model->forward(expected("images"));
  expect_close(output, expected("train"), "output in training");
  (output * expected("upstream")).sum().backward();
  for (const auto& entry : model->named_parameters()) {
    const auto flat = entry.value().grad().flatten();
    const auto step = std::max<int64_t>(1, flat.numel() / kSamples);
    expect_close(flat.slice(0, 0, flat.numel(), step), expected("grad." + entry.key()), entry.key());
  }
  model->eval();
  const at::NoGradGuard no_grad;
  expect_close(model->forward(expected("images")), expected("eval"), "output in evaluation");
}

INSTANTIATE_TEST_SUITE_P(Models, Torchvision, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::models
