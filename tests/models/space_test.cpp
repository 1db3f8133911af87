#include "tandem/models/space.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tandem/base/error.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

using test::text_of;

/// The shares of which each operation of each edge has as much as the others.
Tensor even(const CellSpace& cell) {
  const auto edges = static_cast<int64_t>(cell.edges.size());
  return at::full({edges, cell.operations()}, 1.0 / static_cast<double>(cell.operations()), at::kDouble);
}

TEST(Space, DartsHasFourteenEdgesOfEightOperations) {
  const auto& space = space_of("darts");
  EXPECT_EQ(space.edges(), 14);
  EXPECT_EQ(space.cells[0].operations(), 8);
  EXPECT_EQ(space.cells[0].edges[13], space.cells[1].edges[0]);
  const std::vector<std::string_view> names = {"none",         "max_pool_3x3", "avg_pool_3x3", "skip_connect",
                                               "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"};
  EXPECT_EQ(space.cells[0].edges[0], names);
}

TEST(Space, UnknownNamesAreRefusedWithTheList) {
  EXPECT_EQ(text_of<SettingsError>([] { space_of("dart"); }),
            "space is 'dart', wanted darts, s1, s2, s3, s4 or nas-bench-201");
}

TEST(Space, EachNodeKeepsItsTwoStrongestEdgesTheStrongestFirst) {
  const auto& space = space_of("darts");
  auto normal = even(space.cells[0]);
  normal[0][4] = 0.5;   // node 2: input 0, sep_conv_3x3
  normal[1][7] = 0.6;   // input 1, dil_conv_5x5
  normal[13][0] = 0.9;  // none counts for nothing, however strong
  normal[13][5] = 0.3;  // the last node: input 4, sep_conv_5x5
  normal[10][3] = 0.2;  // input 1, skip_connect
  const auto cell = derive(space, {normal, even(space.cells[1])})[0];
  const std::vector<GenotypeEdge> first = {{"dil_conv_5x5", 1}, {"sep_conv_3x3", 0}},
                                  last = {{"sep_conv_5x5", 4}, {"skip_connect", 1}};
  EXPECT_EQ(cell.nodes[0], first);
  EXPECT_EQ(cell.nodes[3], last);
  const std::vector<int64_t> all = {2, 3, 4, 5};
  EXPECT_EQ(cell.concat, all);
  EXPECT_EQ(skips_of(cell), 1);
}

TEST(Space, OfEqualWeightsTheEarlierEdgeAndOperationCount) {
  const auto& space = space_of("darts");
  const auto cells = derive(space, {even(space.cells[0]), even(space.cells[1])});
  for (const auto& node : cells[1].nodes) {
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
  EXPECT_EQ(derive(space, {alphas.softmax(1), even(space.cells[1])})[0].nodes[1], expected);
}

TEST(Space, WeightsOfAnotherSpaceAreRefused) {
  const auto &darts = space_of("darts"), &s2 = space_of("s2");
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              derive(darts, {even(s2.cells[0]), even(s2.cells[1])});
            }),
            "weights of operations: shape is [14, 2], wanted [14, 8] for the space darts");
  auto spoilt = even(darts.cells[0]);
  spoilt[3][3] = std::nan("");
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              derive(darts, {spoilt, even(darts.cells[1])});
            }),
            "weights of operations: one is not a number");
  EXPECT_EQ(text_of<c10::ValueError>([&] { derive(darts, {even(darts.cells[0])}); }),
            "weights of operations: there are 1, wanted 2 for the space darts");
}

/// The two operations that Zela et al. 2020 print for each edge, of which some have no skip connection.
TEST(Space, S1HasTwoOperationsOfItsOwnOnEachEdge) {
  const auto& space = space_of("s1");
  std::set<std::vector<std::string_view>> normal(space.cells[0].edges.begin(), space.cells[0].edges.end());
  EXPECT_EQ(space.edges(), 14);
  EXPECT_EQ(normal.size(), 5U);
  const std::vector<std::string_view> first = {"skip_connect", "dil_conv_3x3"}, last = {"dil_conv_3x3", "dil_conv_5x5"},
                                      reduced = {"max_pool_3x3", "avg_pool_3x3"};
  EXPECT_EQ(space.cells[0].edges[0], first);
  EXPECT_EQ(space.cells[0].edges[13], last);
  EXPECT_EQ(space.cells[1].edges[0], reduced);
}

TEST(Space, ACellOfNasBench201KeepsAllItsEdgesAlsoThoseOfNone) {
  const auto& space = space_of("nas-bench-201");
  ASSERT_EQ(space.cells.size(), 1U);
  EXPECT_EQ(space.edges(), 6);
  auto shares = even(space.cells[0]);
  for (const auto& [edge, operation] : {std::pair(0, 3), {1, 1}, {2, 0}, {3, 2}, {4, 4}, {5, 3}}) {
    shares[edge][operation] = 0.3 + 0.1 * edge;
  }
  const auto cells = derive(space, {shares});
  EXPECT_EQ(space.skeleton->text(cells),
            "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|nor_conv_1x1~0|avg_pool_3x3~1|nor_conv_3x3~2|");
  EXPECT_EQ(space.skeleton->parse(space.skeleton->text(cells), "here"), cells);
}

}  // namespace
}  // namespace tandem::models
