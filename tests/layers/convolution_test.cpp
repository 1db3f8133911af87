#include "tandem/layers/convolution.h"

#include "tests/layers/layer_cases.h"

namespace tandem::layers {
namespace {

using namespace test_layers;

constexpr int64_t kIn = 6, kOut = 7;
const Conv2d::Options kPlain = {.in = kIn, .out = kOut};
const Conv2d::Options kShape = {.in = kIn,
                                .out = kOut,
                                .kernel = {3, 2},
                                .stride = 2,
                                .padding = {2, 1},
                                .dilation = 2,
                                .bias = true,
                                .draw = Draw::fan_in};

const std::function<Tensor(const Tensor&)> kLoss = [](const Tensor& y) {
  return (y * numbers(y.sizes(), 1)).mean() + y.pow(2).mean();
};

/// torch's, with the weights that a layer of one rank draws.
struct Alone : torch::nn::Module {
  explicit Alone(const Conv2d::Options& shape) : shape(shape) {
    const auto drawn = ready(std::make_shared<Conv2d>(shape));
    weight = register_parameter("weight", drawn->named_parameters()["weight"].detach().clone());
    if (shape.bias) bias = register_parameter("bias", drawn->named_parameters()["bias"].detach().clone());
  }
  Tensor forward(const Tensor& x) const {
    return at::conv2d(x, weight, bias, shape.stride.list(), shape.padding.list(), shape.dilation.list());
  }

  Conv2d::Options shape;
  Tensor weight, bias;
};

void expect_one_device(const std::function<void(comm::ProcessGroup&, const Trained&, const Conv2d::Options&)>& body) {
  for (const auto& shape : {kShape, kPlain}) {
    Alone alone(shape);
    const auto x = numbers({3, kIn, 5, 6}, 0);
    const auto expected = train([&](const Tensor& in) { return alone.forward(in); }, alone, x, kLoss);
    on_ranks([&](comm::ProcessGroup& group) { body(group, expected, shape); });
  }
}

void expect_outputs(const Trained& own, const Trained& expected) {
  for (size_t i = 0; i < own.outputs.size(); ++i) EXPECT_TRUE(are_equal(own.outputs[i], expected.outputs[i])) << i;
}

TEST(OutputConv2d, IsThatOfOneDevice) {
  expect_one_device([](comm::ProcessGroup& group, const Trained& expected, const Conv2d::Options& shape) {
    const Division out(group, kOut);
    const auto x = numbers({3, kIn, 5, 6}, 0);
    const auto layer = ready(std::make_shared<OutputConv2d>(shape, out));
    const auto own = train([&](const Tensor& in) { return layer->forward(in); }, *layer, x, kLoss);
    expect_outputs(own, expected);
    EXPECT_TRUE(are_equal(own.dx, expected.dx));
    expect_parts(*layer, own.weights, expected.weights);
    const auto kept = ready(std::make_shared<OutputConv2d>(shape, out, /*gathers=*/false));
    EXPECT_TRUE(are_equal(kept->forward(x).detach(), expected.outputs[0].narrow(1, out.first(), out.count())));
  });
}

TEST(InputConv2d, IsThatOfOneDevice) {
  expect_one_device([](comm::ProcessGroup& group, const Trained& expected, const Conv2d::Options& shape) {
    const Division in(group, kIn);
    const auto x = numbers({3, kIn, 5, 6}, 0);
    for (const bool scatters : {true, false}) {
      const auto layer = ready(std::make_shared<InputConv2d>(shape, in, scatters));
      const auto own = train([&](const Tensor& part) { return layer->forward(part); }, *layer,
                             scatters ? x : x.narrow(1, in.first(), in.count()), kLoss);
      expect_outputs(own, expected);
      EXPECT_TRUE(are_equal(own.dx, scatters ? expected.dx : expected.dx.narrow(1, in.first(), in.count())));
      expect_parts(*layer, own.weights, expected.weights);
    }
  });
}

TEST(OutputConv2d, ARankWithoutChannelsIsRefused) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    EXPECT_THROW(OutputConv2d({.in = 4, .out = 2}, Division(group, 2)), c10::ValueError);
    EXPECT_THROW(OutputConv2d({.in = 4, .out = 5}, Division(group, 4)), c10::ValueError);
    EXPECT_THROW(InputConv2d({.in = 2, .out = 4}, Division(group, 2)), c10::ValueError);
    EXPECT_THROW(GroupConv2d({.in = 4, .out = 4, .groups = 2}, Division(group, 2)), c10::ValueError);
    EXPECT_THROW(GroupConv2d({.in = 4, .out = 6, .groups = 3}, Division(group, 3)), c10::ValueError);
    EXPECT_THROW(GroupConv2d({.in = 4, .out = 4, .groups = 4}, Division(group, 2)), c10::ValueError);
  });
}

}  // namespace
}  // namespace tandem::layers
