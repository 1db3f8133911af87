#include "tandem/cli/bench/parity.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/parallel/strategy.h"
#include "tests/cli/run_command.h"
#include "tests/support/files.h"

namespace tandem::cli {
namespace {

constexpr double kClose = kParityRounding;

std::set<std::string> all_strategies() {
  std::set<std::string> names;
  for (const auto& strategy : parallel::strategies()) names.emplace(strategy.name);
  return names;
}

/// Three ranks and a batch that neither they nor the micro-batches divide.
TEST(Parity, EveryStrategyTrainsAsOneDevice) {
  const auto result = bench_parity({.most_ranks = 3, .batch = 23, .steps = 10, .accumulate = {1, 3}});
  std::set<std::string> seen;
  size_t others = 0;
  for (const auto& one : result.cases) {
    SCOPED_TRACE(one.parallel + " ranks " + std::to_string(one.ranks) + " parts " + std::to_string(one.accumulate));
    EXPECT_LE(one.difference.loss, kClose * one.largest.loss);
    EXPECT_LE(one.difference.gradient, kClose * one.largest.gradient);
    EXPECT_LE(one.difference.weight, kClose * one.largest.weight);
    EXPECT_EQ(one.parts, "");
    const bool is_strategy = one.more.empty() && one.parallel != "tensor";
    if (is_strategy) seen.insert(one.parallel);
    others += is_strategy ? 0 : 1;
  }
  EXPECT_EQ(others, (5 * 3U + 2 + 2 + 2 + 3 + 3 * 2) * 2 * 2 + (4 * 3 + 5 * 2 + 1 + 1 + 1 + 1) * 2 + 3 +
                        6 * (3 + 3 + 2) + 5 + 1 + 4 + 2 * 12)
      << "1 to 3 ranks along tensor, 2 and 4 of two axes, 8 of three, 1 to 3 that search; pipelines of 1 to 3 ranks, "
         "or of two with two stages each, and beside data and tensor; heads divided over pipelines, and real models "
         "over each two axes";
  EXPECT_EQ(result.cases.size(), all_strategies().size() * 3 * 2 * 2 + others);
  EXPECT_EQ(seen, all_strategies());
  EXPECT_GT(result.moved, 1e-3) << "the weights have hardly been trained";
}

/// Statistics of a part of the batch are not those of the batch.
TEST(Parity, TellsWhereAPlanParts) {
  const auto with = [](const std::string& norm) {
    const ParityCase plan = {.parallel = "ddp",
                             .more = {"model=resnet_glyph", "model.norm=" + norm},
                             .ranks = 2,
                             .accumulate = 1,
                             .recompute = "none"};
    return where_it_parts({}, plan);
  };
  EXPECT_EQ(with("batch").substr(0, 38), "step 1: output of block stem differs b");
  EXPECT_EQ(with("none"), "");
}

TEST(Parity, WritesItsPageAndItsResult) {
  const test::TemporaryFolder folder;
  const auto page = (folder / "parity.md").string(), json = (folder / "parity.json").string();
  const auto ended =
      test::run_here({"bench", "parity", "ranks=2", "steps=1", "accumulate=2", "page=" + page, "--json", json});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto text = [](const std::string& path) {
    std::ifstream file(path);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  for (const auto& name : all_strategies()) {
    EXPECT_NE(text(page).find("\n| " + name + " | "), std::string::npos) << text(page);
  }
  const auto result = nlohmann::json::parse(text(json));
  EXPECT_NE(text(page).find("\n| ddp model=none embedding=64 mesh.tensor=2 | "), std::string::npos);
  EXPECT_EQ(result["cases"].size(), 4 * all_strategies().size() + (5 * 2 + 2 + 2 + 2 + 2 + 3 * 2) * 2 +
                                        (9 * 2 + 1 + 1 + 1 + 1) + 2 + 2 + 6 * 3 * 2 + 5 + 1 + 4 + 2 * 12);
  EXPECT_EQ(result["cases"][0]["parallel"], "ddp");
  EXPECT_TRUE(result["cases"][0]["difference"]["weight"].is_number());
  EXPECT_EQ(test::run_here({"bench", "parity", "page=/nowhere/page.md"}).err,
            "error: page '/nowhere/page.md' cannot be written: No such file or directory; make its folder first\n");
}

}  // namespace
}  // namespace tandem::cli
