#include "tests/models/oracle_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

namespace tandem::models::test_oracle {
namespace {

constexpr int64_t kSamples = 2000;  // entries of a gradient that the oracle keeps

/// Every entry of the model that has a name in a file of weights.
std::map<std::string, Tensor> state_of(const torch::nn::Module& model) {
  std::map<std::string, Tensor> state;
  for (const auto& entry : model.named_parameters()) state[entry.key()] = entry.value();
  for (const auto& entry : model.named_buffers()) state[entry.key()] = entry.value();
  return state;
}

void load_state(const torch::nn::Module& model, const test::OracleAnswer& oracle, const std::string& name) {
  const at::NoGradGuard no_grad;
  const auto state = state_of(model);
  const auto prefix = name + "/state.";
  size_t entries = 0;
  for (const auto& [key, value] : oracle.tensors) {
    if (!key.starts_with(prefix)) continue;
    ++entries;
    const auto own = state.find(key.substr(prefix.size()));
    ASSERT_NE(own, state.end()) << "the oracle has " << key << ", the model has not";
    ASSERT_EQ(own->second.sizes(), value.sizes()) << key;
    own->second.copy_(value);
  }
  EXPECT_EQ(entries, state.size()) << "the model has entries that the oracle has not";
}

void expect_close(const Tensor& ours, const Tensor& theirs, const std::string& what) {
  const double scale = theirs.abs().max().item<double>();
  EXPECT_LE((ours - theirs).abs().max().item<double>(), 1e-11 * std::max(scale, 1.0)) << what;
}

}  // namespace

void expect_equal(Backbone& model, const test::OracleAnswer& oracle, const std::string& name) {
  const auto expected = [&](const std::string& key) { return oracle.tensors.at(name + "/" + key); };
  ASSERT_NO_FATAL_FAILURE(load_state(model, oracle, name));
  model.to(at::kDouble);
  const auto output = model.forward(expected("images"));
  expect_close(output, expected("train"), "output in training");
  (output * expected("upstream")).sum().backward();
  for (const auto& entry : model.named_parameters()) {
    const auto flat = entry.value().grad().flatten();
    const auto step = std::max<int64_t>(1, flat.numel() / kSamples);
    expect_close(flat.slice(0, 0, flat.numel(), step), expected("grad." + entry.key()), entry.key());
  }
  model.eval();
  const at::NoGradGuard no_grad;
  expect_close(model.forward(expected("images")), expected("eval"), "output in evaluation");
}

}  // namespace tandem::models::test_oracle
