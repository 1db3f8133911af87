#include "tandem/parallel/parameter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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
  const Placement placement = {.splits = {{0, 4, 3, 11}}, .replica = 1, .holder = 5};
  const auto split = Parameter::placed("a", at::zeros({3, 2}), placement);
  EXPECT_EQ(split.beside("momentum.a", at::zeros({3, 2})).placement, placement);
  EXPECT_EQ(split.beside("momentum.a", at::zeros({3, 2})).name, "momentum.a");
  EXPECT_EQ(split.whole_beside("step.a", at::zeros({})).placement, Placement{.holder = 5});
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

}  // namespace
}  // namespace tandem::parallel
