#include "tests/models/oracle_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

namespace tandem::models::test_oracle {
namespace {

constexpr int64_t kSamples = 2000;    // entries of a gradient that the oracle keeps
constexpr double kTolerance = 1e-11;  // of the largest entry
constexpr double kSmallest = 0.01;    // taken for a smaller one: where a gradient is 0, rounding leaves 1e-15

/// Every entry of the model that has a name in a file of weights.
std::map<std::string, Tensor> state_of(const torch::nn::Module& model) {
  std::map<std::string, Tensor> state;
  for (const auto& entry : model.named_parameters()) state[entry.key()] = entry.value();
  for (const auto& entry : model.named_buffers()) state[entry.key()] = entry.value();
  return state;
}

bool is_close(const Tensor& ours, const Tensor& theirs) {
  const double scale = std::max(theirs.abs().max().item<double>(), kSmallest);
  return (ours - theirs).abs().max().item<double>() <= kTolerance * scale;
}

int64_t step_of(const Tensor& gradient) { return std::max<int64_t>(1, gradient.numel() / kSamples); }

}  // namespace

void give_weights(Backbone& model, const test::OracleAnswer& oracle, const std::string& name) {
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
  model.to(at::kDouble);
}

void move_weight(Backbone& model, const test::OracleAnswer& oracle, const std::string& name, const std::string& key,
                 double distance) {
  const at::NoGradGuard no_grad;
  const auto weights = model.named_parameters()[key];
  const auto greatest = oracle.tensors.at(name + "/grad." + key).abs().argmax().item<int64_t>();
  const auto move = at::zeros(weights.sizes(), weights.options());
  move.view(-1)[greatest * step_of(weights)] = distance;
  weights.add_(move);
}

std::vector<std::string> differences(Backbone& model, const test::OracleAnswer& oracle, const std::string& name) {
  std::vector<std::string> found;
  const auto expected = [&](const std::string& key) { return oracle.tensors.at(name + "/" + key); };
  const auto compare = [&](const Tensor& ours, const std::string& key) {
    if (!is_close(ours, expected(key))) found.push_back(key);
  };
  model.zero_grad();
  model.train();
  const auto output = model.forward(expected("images"));
  compare(output, "train");
  (output * expected("upstream")).sum().backward();
  for (const auto& entry : model.named_parameters()) {
    const auto flat = entry.value().grad().flatten();
    compare(flat.slice(0, 0, flat.numel(), step_of(flat)), "grad." + entry.key());
  }
  model.eval();
  const at::NoGradGuard no_grad;
  compare(model.forward(expected("images")), "eval");
  return found;
}

void expect_equal(Backbone& model, const test::OracleAnswer& oracle, const std::string& name) {
  ASSERT_NO_FATAL_FAILURE(give_weights(model, oracle, name));
  EXPECT_EQ(differences(model, oracle, name), std::vector<std::string>());
}

}  // namespace tandem::models::test_oracle
