#include "tandem/parallel/parameter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using test::text_of;

// A tensor alone does not say where it lies, so that none becomes a parameter without a word on that.
static_assert(!std::is_constructible_v<Parameter, std::string, Tensor>);
static_assert(!std::is_constructible_v<Parameter, std::string, Tensor, std::optional<RowRange>>);
static_assert(!std::is_default_constructible_v<Parameter>);

TEST(Parameter, SaysWhereItLies) {
  const auto tensor = at::zeros({3, 2});
  EXPECT_FALSE(Parameter::replicated("a", tensor).rows);
  EXPECT_EQ(Parameter::split("a", tensor, {4, 3, 11}).rows, (RowRange{4, 3, 11}));
  EXPECT_EQ(Parameter::split("a", at::zeros({0, 2}), {11, 0, 11}).rows, (RowRange{11, 0, 11}));
}

TEST(Parameter, ItsStateLiesBesideIt) {
  const auto split = Parameter::split("a", at::zeros({3, 2}), {4, 3, 11});
  EXPECT_EQ(split.beside("momentum.a", at::zeros({3, 2})).rows, split.rows);
  EXPECT_EQ(split.beside("momentum.a", at::zeros({3, 2})).name, "momentum.a");
  EXPECT_FALSE(Parameter::replicated("a", at::zeros({3})).beside("b", at::zeros({3})).rows);
}

TEST(Parameter, FaultsAreNamed) {
  EXPECT_EQ(text_of<c10::ValueError>([] {
              Parameter::split("w", at::zeros({3, 2}), {0, 4, 4});
            }),
            "parameter w: shape is [3, 2], wanted 4 rows as its range has");
  EXPECT_EQ(text_of<c10::ValueError>([] {
              Parameter::split("w", at::zeros({}), {0, 1, 4});
            }),
            "parameter w: shape is [], wanted 1 rows as its range has");
  EXPECT_EQ(text_of<c10::ValueError>([] {
              Parameter::split("w", at::zeros({3, 2}), {2, 3, 4});
            }),
            "parameter w: rows are 2..4, wanted some of 0..3");
}

}  // namespace
}  // namespace tandem::parallel
