#include "tandem/parallel/parameter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "tandem/comm/world.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tandem/parallel/strategy.h"

#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using test::text_of;

// A tensor alone does not say where it lies, so that none becomes a parameter without a word on that.
static_assert(!std::is_constructible_v<Parameter, std::string, Tensor>);
static_assert(!std::is_constructible_v<Parameter, std::string, Tensor, Placement>);
static_assert(!std::is_default_constructible_v<Parameter>);

TEST(Parameter, SaysWhereItLies) {
  const auto tensor = at::zeros({3, 2});
  EXPECT_TRUE(Parameter::replicated("a", tensor).placement.is_everywhere());
  const auto split = Parameter::split("a", tensor, {.dim = 1, .first = 4, .count = 2, .total = 11});
  EXPECT_EQ(split.placement.splits, (std::vector<Split>{{1, 4, 2, 11}}));
  EXPECT_FALSE(split.placement.is_everywhere());
  EXPECT_EQ(Parameter::split("a", at::zeros({0, 2}), {0, 11, 0, 11}).placement.splits,
            (std::vector<Split>{{0, 11, 0, 11}}));
}

TEST(Parameter, ItsStateLiesBesideIt) {
  const Placement placement = {.splits = {{0, 4, 3, 11}}, .split_along = {Axis::tensor}, .behind = {Axis::data}};
  const auto split = Parameter::placed("a", at::zeros({3, 2}), placement);
  EXPECT_EQ(split.beside("momentum.a", at::zeros({3, 2})).placement, placement);
  EXPECT_EQ(split.beside("momentum.a", at::zeros({3, 2})).name, "momentum.a");
  EXPECT_EQ(split.whole_beside("step.a", at::zeros({})).placement, Placement{.behind = {Axis::data}});
  const auto over_all = Parameter::split("a", at::zeros({3, 2}), {0, 4, 3, 11});
  EXPECT_TRUE(over_all.whole_beside("step.a", at::zeros({})).placement.is_everywhere());
  EXPECT_TRUE(Parameter::replicated("a", at::zeros({3})).beside("b", at::zeros({3})).placement.is_everywhere());
}

TEST(Parameter, AFaultNamesTheParameter) {
  EXPECT_EQ(text_of<c10::ValueError>([] {
              Parameter::split("w", at::zeros({3, 2}), {0, 0, 4, 4});
            }),
            "parameter w: shape is [3, 2], wanted 4 along dim 0 as its placement has");
}

/// One layer with two names.
struct Tied : torch::nn::Module {
  Tied() {
    first = register_module("first", torch::nn::Linear(3, 3));
    last = register_module("last", first);
  }
  torch::nn::Linear first = nullptr, last = nullptr;
};

TEST(Parameter, OfTwoModulesIsListedOnce) {
  const Tied tied;
  EXPECT_EQ(tied.named_parameters().size(), 4U);
  EXPECT_EQ(names_of(parameters_of(tied)), (std::vector<std::string>{"first.weight", "first.bias"}));
}

TEST(Parameter, ATensorThatIsListedTwiceIsRefused) {
  const auto tensor = at::ones({3}).requires_grad_();
  const std::vector<Parameter> twice = {Parameter::replicated("a", tensor), Parameter::replicated("b", tensor)};
  const std::string fault =
      ": a and b are one tensor, wanted each tensor once: list it under its first name, as parameters_of() does";
  const auto group = comm::make_single_group();
  for (const auto& strategy : strategies()) {
    Mesh mesh(strategy.mesh(1, {}), *group);
    const auto text = text_of<c10::ValueError>([&] { strategy.make({twice}, mesh, {}); });
    EXPECT_NE(text.find(fault), std::string::npos) << strategy.name << ": " << text;
  }
}

TEST(Parameter, OfTwoModulesGetsTheSumOfItsGradients) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    Tied tied;
    const at::Tensor weight = tied.first->weight;
    DistributedDataParallel replicas(tied, group);
    const auto loss =
        (tied.first->weight.sum() + 2 * tied.last->weight.sum() + tied.first->bias.sum() + tied.last->bias.sum());
    replicas.before_backward(loss);
    loss.backward();
    EXPECT_TRUE(weight.grad().equal(at::full({3, 3}, 6.0)));
  });
}

}  // namespace
}  // namespace tandem::parallel
