#include "tandem/layers/linear.h"

#include "tandem/comm/collectives.h"
#include "tests/layers/layer_cases.h"

namespace tandem::layers {
namespace {

using namespace test_layers;

constexpr int64_t kRows = 6, kIn = 7, kHidden = 11, kOut = 5;

const std::function<Tensor(const Tensor&)> kLoss = [](const Tensor& y) {
  return (y * numbers(y.sizes(), 1)).sum() + y.pow(2).mean();
};

/// torch's, with the weights that a layer of one rank draws.
struct Alone : torch::nn::Module {
  Alone(int64_t in, int64_t out, bool bias) {
    const auto group = comm::make_single_group();
    const auto drawn = ready(std::make_shared<ColumnLinear>(in, Division(*group, out), ColumnLinear::Options{bias}));
    weight = register_parameter("weight", drawn->named_parameters()["weight"].detach().clone());
    if (bias) this->bias = register_parameter("bias", drawn->named_parameters()["bias"].detach().clone());
  }
  Tensor forward(const Tensor& x) const { return at::linear(x, weight, bias); }

  Tensor weight, bias;
};

TEST(ColumnLinear, IsThatOfOneDevice) {
  for (const bool bias : {true, false}) {
    Alone alone(kIn, kOut, bias);
    const auto x = numbers({kRows, kIn}, 0);
    const auto expected = train([&](const Tensor& in) { return alone.forward(in); }, alone, x, kLoss);
    on_ranks([&](comm::ProcessGroup& group) {
      const auto layer =
          ready(std::make_shared<ColumnLinear>(kIn, Division(group, kOut), ColumnLinear::Options{.bias = bias}));
      const auto own = train([&](const Tensor& in) { return layer->forward(in); }, *layer, x, kLoss);
      for (size_t i = 0; i < own.outputs.size(); ++i) EXPECT_TRUE(are_equal(own.outputs[i], expected.outputs[i]));
      EXPECT_TRUE(are_equal(own.dx, expected.dx));
      expect_parts(*layer, own.weights, expected.weights);
    });
  }
}

TEST(RowLinear, IsThatOfOneDevice) {
  for (const bool bias : {true, false}) {
    Alone alone(kIn, kOut, bias);
    const auto x = numbers({2, 3, kIn}, 0);
    const auto expected = train([&](const Tensor& in) { return alone.forward(in); }, alone, x, kLoss);
    on_ranks([&](comm::ProcessGroup& group) {
      const Division in(group, kIn);
      for (const bool scatters : {true, false}) {
        const auto layer =
            ready(std::make_shared<RowLinear>(in, kOut, RowLinear::Options{.bias = bias, .scatters = scatters}));
        const auto own = train([&](const Tensor& part) { return layer->forward(part); }, *layer,
                               scatters ? x : x.narrow(2, in.first(), in.count()), kLoss);
        for (size_t i = 0; i < own.outputs.size(); ++i) EXPECT_TRUE(are_equal(own.outputs[i], expected.outputs[i]));
        EXPECT_TRUE(are_equal(own.dx, scatters ? expected.dx : expected.dx.narrow(2, in.first(), in.count())));
        expect_parts(*layer, own.weights, expected.weights);
      }
    });
  }
}

/// The ranks have samples of their own: gathered before the pair, and scattered behind it.
TEST(RowLinear, AfterAColumnLinearTakesAndGivesTheSamplesOfEachRank) {
  const auto make = [](comm::ProcessGroup& group, torch::nn::Module& pair) {
    const Division hidden(group, kHidden);
    const auto up =
        ready(std::make_shared<ColumnLinear>(kIn, hidden, ColumnLinear::Options{.copies = false, .gathers = false}));
    const auto down = ready(std::make_shared<RowLinear>(hidden, kOut, RowLinear::Options{.rows = 0}));
    pair.register_module("up", up);
    pair.register_module("down", down);
    return std::pair(up, down);
  };
  const auto loss = [](const Tensor& y, int64_t first) {
    return (y * numbers({kRows, kOut}, 1).narrow(0, first, y.size(0))).sum() + y.pow(2).sum();
  };
  const auto alone = comm::make_single_group();
  torch::nn::Module whole("Pair");
  make(*alone, whole);
  const auto x = numbers({kRows, kIn}, 0);
  auto weights = whole.named_parameters();
  const auto plain = [&](const Tensor& in) {
    const auto hidden = at::silu(at::linear(in, weights["up.weight"], weights["up.bias"]));
    return at::linear(hidden, weights["down.weight"], weights["down.bias"]);
  };
  const auto expected = train(plain, whole, x, [&](const Tensor& y) { return loss(y, 0); });
  on_ranks([&](comm::ProcessGroup& group) {
    const Division rows(group, kRows);
    torch::nn::Module pair("Pair");
    const auto [up, down] = make(group, pair);
    const auto forward = [&, up = up, down = down](const Tensor& in) {
      return down->forward(at::silu(up->forward(comm::all_gather(in, group))));
    };
    const auto own = train(forward, pair, x.narrow(0, rows.first(), rows.count()),
                           [&](const Tensor& y) { return loss(y, rows.first()); });
    EXPECT_TRUE(are_equal(own.dx, expected.dx.narrow(0, rows.first(), rows.count())));
    EXPECT_TRUE(are_equal(own.outputs[9], expected.outputs[9].narrow(0, rows.first(), rows.count())));
    expect_parts_of_children(pair, own.weights, expected.weights);
  });
}

/// One all_reduce forward, one backward.
TEST(RowLinear, AfterAColumnLinearSendsTwoSumsAStep) {
  on_ranks([&](comm::ProcessGroup& group) {
    const Division hidden(group, kHidden);
    const auto up = ready(std::make_shared<ColumnLinear>(kIn, hidden, ColumnLinear::Options{.gathers = false}));
    const auto down = ready(std::make_shared<RowLinear>(hidden, kOut, RowLinear::Options{}));
    const auto x = numbers({kRows, kIn}, 0).requires_grad_();
    group.meter().reset();
    kLoss(down->forward(at::relu(up->forward(x)))).backward();
    const auto counts = group.meter().counts();
    ASSERT_EQ(counts.size(), group.size() == 1 ? 0U : 1U);
    for (const auto& [operation, count] : counts) {
      EXPECT_EQ(operation, "all_reduce");
      EXPECT_EQ(count.calls, 2);
    }
  });
}

}  // namespace
}  // namespace tandem::layers
