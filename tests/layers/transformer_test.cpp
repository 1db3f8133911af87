#include "tandem/layers/transformer.h"

#include "tandem/comm/region.h"
#include "tests/layers/layer_cases.h"

namespace tandem::layers {
namespace {

using namespace test_layers;

constexpr int64_t kImages = 2, kTokens = 5, kHeads = 5, kWidth = 20, kHidden = 13;

const std::function<Tensor(const Tensor&)> kLoss = [](const Tensor& y) {
  return (y * numbers(y.sizes(), 1)).mean() + y.pow(2).mean();
};

template <class Made>
std::shared_ptr<Made> drawn(std::shared_ptr<Made> module) {
  initialize(*module, 3);
  module->to(at::kDouble);
  return module;
}

/// That each layer's parts are those of the whole, and what both have trained to.
void expect_same(torch::nn::Module& module, const Trained& own, const Trained& expected) {
  for (size_t i = 0; i < own.outputs.size(); ++i) EXPECT_TRUE(are_equal(own.outputs[i], expected.outputs[i])) << i;
  EXPECT_TRUE(are_equal(own.dx, expected.dx));
  expect_parts_of_children(module, own.weights, expected.weights);
}

/// A layer that takes this rank's tokens, from all tokens to all.
template <class Made>
std::function<Tensor(const Tensor&)> of_tokens(const Made& layer, const Division& tokens) {
  return [&](const Tensor& x) {
    const auto own = comm::scatter_to_region(x, tokens.group(), 1, tokens.counts());
    return comm::gather_from_region(layer.forward(own), tokens.group(), 1, tokens.counts());
  };
}

TEST(Attention, IsThatOfOneDevice) {
  const auto x = numbers({kImages, kTokens, kWidth}, 0);
  const auto single = comm::make_single_group();
  const auto alone = drawn(std::make_shared<Attention>(kWidth, Division(*single, kHeads)));
  auto weights = alone->named_parameters();
  const auto plain = [&](const Tensor& in) {
    const auto all = at::linear(in, weights["qkv.weight"], weights["qkv.bias"]);
    std::vector<Tensor> heads;
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t size = kWidth / kHeads;
      const auto of = [&](int64_t stack) { return all.narrow(2, stack * kWidth + head * size, size); };
      const auto scores = at::matmul(of(0), of(1).transpose(1, 2)) / std::sqrt(static_cast<double>(size));
      heads.push_back(at::matmul(scores.softmax(2), of(2)));
    }
    return at::linear(at::cat(heads, 2), weights["proj.weight"], weights["proj.bias"]);
  };
  const auto expected = train(plain, *alone, x, kLoss);
  on_ranks([&](comm::ProcessGroup& group) {
    const auto split = drawn(std::make_shared<Attention>(kWidth, Division(group, kHeads)));
    group.meter().reset();
    const auto own = train([&](const Tensor& in) { return split->forward(in); }, *split, x, kLoss);
    for (const auto& [operation, count] : group.meter().counts()) {
      EXPECT_EQ(operation, "all_reduce");
      EXPECT_EQ(count.calls, 2 * 10);
    }
    expect_same(*split, own, expected);
    const Division tokens(group, kTokens);
    const auto sequence = drawn(std::make_shared<Attention>(kWidth, Division(group, kHeads), tokens));
    expect_same(*sequence, train(of_tokens(*sequence, tokens), *sequence, x, kLoss), expected);
  });
}

TEST(Attention, EachRankHasAHead) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    EXPECT_THROW(Attention(12, Division(group, 2)), c10::ValueError);
    EXPECT_THROW(Attention(12, Division(group, 5)), c10::ValueError);
    const Attention fits(12, Division(group, 4));
  });
}

TEST(FeedForward, IsThatOfOneDevice) {
  const auto x = numbers({kImages, kTokens, kWidth}, 0);
  const auto single = comm::make_single_group();
  const auto alone =
      drawn(std::make_shared<FeedForward>(kWidth, Division(*single, kHidden), memory::activation_of("gelu-merged")));
  auto weights = alone->named_parameters();
  const auto plain = [&](const Tensor& in) {
    const auto hidden = at::gelu(at::linear(in, weights["fc1.weight"], weights["fc1.bias"]));
    return at::linear(hidden, weights["fc2.weight"], weights["fc2.bias"]);
  };
  const auto expected = train(plain, *alone, x, kLoss);
  on_ranks([&](comm::ProcessGroup& group) {
    const auto split =
        drawn(std::make_shared<FeedForward>(kWidth, Division(group, kHidden), memory::activation_of("gelu-fused")));
    const auto own = train([&](const Tensor& in) { return split->forward(in); }, *split, x, kLoss);
    expect_same(*split, own, expected);
    const Division tokens(group, kTokens);
    const auto sequence = drawn(
        std::make_shared<FeedForward>(kWidth, Division(group, kHidden), memory::activation_of("gelu-fused"), tokens));
    expect_same(*sequence, train(of_tokens(*sequence, tokens), *sequence, x, kLoss), expected);
  });
}

/// The tokens are divided: each rank has some of them.
TEST(LayerNorm, IsThatOfOneDevice) {
  const auto x = numbers({kImages, kTokens, kWidth}, 0);
  const auto single = comm::make_single_group();
  const auto alone = ready(std::make_shared<LayerNorm>(kWidth));
  auto weights = alone->named_parameters();
  const auto plain = [&](const Tensor& in) {
    const auto centred = in - in.mean(-1, true);
    const auto deviation = (centred.pow(2).mean(-1, true) + 1e-6).sqrt();
    return centred / deviation * weights["weight"] + weights["bias"];
  };
  const auto expected = train(plain, *alone, x, kLoss);
  on_ranks([&](comm::ProcessGroup& group) {
    const Division tokens(group, kTokens);
    const auto norm = ready(std::make_shared<LayerNorm>(kWidth, &group));
    const auto forward = [&](const Tensor& in) {
      const auto own = comm::scatter_to_region(in, group, 1, tokens.counts());
      return comm::gather_from_region(norm->forward(own), group, 1, tokens.counts());
    };
    const auto own = train(forward, *norm, x, kLoss);
    EXPECT_TRUE(are_equal(own.dx, expected.dx));
    EXPECT_TRUE(are_equal(own.outputs[9], expected.outputs[9]));
    expect_parts(*norm, own.weights, expected.weights);
  });
}

}  // namespace
}  // namespace tandem::layers
