#include "tandem/models/space.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

using test::text_of;

/// The weights in which each operation of each edge has as much as the others.
Tensor even(const CellSpace& cell) {
  const auto edges = static_cast<int64_t>(cell.edges.size());
  return at::full({edges, cell.operations()}, 1.0 / static_cast<double>(cell.operations()), at::kDouble);
}

TEST(Space, DartsHasFourteenEdgesOfEightOperations) {
  const auto& space = space_of("darts");
  EXPECT_EQ(space.edges(), 14);
  EXPECT_EQ(space.normal.operations(), 8);
  EXPECT_EQ(space.normal.edges[13], space.reduce.edges[0]);
  const std::vector<std::string_view> names = {"none",         "max_pool_3x3", "avg_pool_3x3", "skip_connect",
                                               "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"};
  EXPECT_EQ(space.normal.edges[0], names);
}

TEST(Space, UnknownNamesAreRefusedWithTheList) {
  EXPECT_EQ(text_of<SettingsError>([] { space_of("dart"); }), "space is 'dart', wanted darts, s2 or s3");
}

TEST(Space, EachNodeKeepsItsTwoStrongestEdgesTheStrongestFirst) {
  const auto& space = space_of("darts");
  auto normal = even(space.normal), reduce = even(space.reduce);
  normal[0][4] = 0.5;   // node 2: input 0, sep_conv_3x3
  normal[1][7] = 0.6;   // input 1, dil_conv_5x5
  normal[13][0] = 0.9;  // none counts for nothing, however strong
  normal[13][5] = 0.3;  // the last node: input 4, sep_conv_5x5
  normal[10][3] = 0.2;  // input 1, skip_connect
  const auto genotype = derive(space, normal, reduce);
  const std::vector<GenotypeEdge> first = {{"dil_conv_5x5", 1}, {"sep_conv_3x3", 0}},
                                  last = {{"sep_conv_5x5", 4}, {"skip_connect", 1}};
  EXPECT_EQ(genotype.normal.nodes[0], first);
  EXPECT_EQ(genotype.normal.nodes[3], last);
  const std::vector<int64_t> all = {2, 3, 4, 5};
  EXPECT_EQ(genotype.normal.concat, all);
  EXPECT_EQ(skips_of(genotype.normal), 1);
}

TEST(Space, OfEqualWeightsTheEarlierEdgeAndOperationCount) {
  const auto& space = space_of("darts");
  const auto genotype = derive(space, even(space.normal), even(space.reduce));
  for (const auto& node : genotype.reduce.nodes) {
    const std::vector<GenotypeEdge> expected = {{"max_pool_3x3", 0}, {"max_pool_3x3", 1}};
    EXPECT_EQ(node, expected);
  }
}

/// Official DARTS ranks edges by softmax values, pt.darts by raw alphas, which can choose others.
TEST(Space, EdgesAreRankedByTheirShares) {
  const auto& space = space_of("darts");
  auto alphas = at::zeros({14, 8});
  alphas[2].fill_(5);  // node 3, input 0: large numbers that are equal are small shares
  alphas[3][4] = 2;    // input 1
  alphas[4][5] = 1;    // input 2
  const std::vector<GenotypeEdge> expected = {{"sep_conv_3x3", 1}, {"sep_conv_5x5", 2}};
  EXPECT_EQ(derive(space, alphas.softmax(1), even(space.reduce)).normal.nodes[1], expected);
}

TEST(Space, WeightsOfAnotherSpaceAreRefused) {
  const auto &darts = space_of("darts"), &s2 = space_of("s2");
  EXPECT_EQ(text_of<c10::ValueError>([&] { derive(darts, even(s2.normal), even(s2.reduce)); }),
            "weights of operations: shape is [14, 2], wanted [14, 8] for the space darts");
  auto spoilt = even(darts.normal);
  spoilt[3][3] = std::nan("");
  EXPECT_EQ(text_of<c10::ValueError>([&] { derive(darts, spoilt, even(darts.reduce)); }),
            "weights of operations: one is not a number");
}

}  // namespace
}  // namespace tandem::models
