#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// trace.blocks and tandem diff.
namespace tandem::cli {
namespace {

using Words = std::vector<std::string>;

class Runs {
 public:
  /// A run of four steps of a plan.
  std::string train(const std::string& name, const Words& more) {
    Words words = {
        "train",          "data=synthetic",          "head.classes=11",   "data.size=16",         "embedding=16",
        "train.batch=13", "train.steps=4",           "model.norm=none",   "report.compare=false", "threads=1",
        "train.lr=0.01",  "train.schedule=constant", "model.dropout=0.1", "out=" + path(name)};
    words.insert(words.end(), more.begin(), more.end());
    const auto ended = test::run_here(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return path(name);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  test::TemporaryFolder folder_;
};

std::string told(const std::string& one, const std::string& other, int status = 0) {
  const auto ended = test::run_here({"diff", one, other});
  EXPECT_EQ(ended.status, status) << ended.err;
  return ended.out + ended.err;
}

TEST(Diff, PlansOfOneModelDoNotPart) {
  Runs runs;
  const Words stats = {"trace.blocks=stats", "train.precision=float64"};
  const auto with = [&](const Words& more) {
    auto words = stats;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const auto alone = runs.train("alone", stats);
  for (const auto& [name, more] : std::vector<std::pair<std::string, Words>>{
           {"tensor", {"ranks=3", "parallel=tensor"}},
           {"fsdp", {"ranks=2", "parallel=fsdp", "recompute=sqrt"}},
           {"both", {"ranks=4", "mesh.tensor=2", "train.accumulate=2", "head.over=data"}}}) {
    EXPECT_EQ(told(alone, runs.train(name, with(more))), "no block differs in 4 steps\n") << name;
  }
  const Words vit = {"model=vit_tiny", "model.patch=8", "model.dropout=0"};
  const auto with_vit = [&](const Words& more) {
    auto words = with(vit);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  EXPECT_EQ(told(runs.train("vit", with_vit({"train.steps=2"})),
                 runs.train("tokens", with_vit({"train.steps=2", "ranks=2", "parallel=tensor", "recompute=sqrt",
                                                "model.sequence_parallel=true"}))),
            "no block differs in 2 steps\n");
  const auto mlp = runs.train("mlp", with({"model=mlp"}));
  EXPECT_EQ(told(mlp, runs.train("mlp on three", with({"model=mlp", "ranks=3", "parallel=tensor"}))),
            "no block differs in 4 steps\n");
}

TEST(Diff, NamesTheFirstStepAndBlock) {
  Runs runs;
  const auto one = runs.train("one", {"trace.blocks=stats"});
  const auto other = runs.train("other", {"trace.blocks=stats", "train.lr=0.011"});
  const auto ended = test::run_here({"diff", one, other, "--json", "-"});
  EXPECT_EQ(ended.status, 1);
  const auto result = nlohmann::json::parse(ended.out);
  EXPECT_EQ(result["first"]["step"], 2);
  EXPECT_EQ(result["first"]["micro_batch"], 0);
  EXPECT_EQ(result["first"]["block"], "stem");
  EXPECT_EQ(result["first"]["tensor"], "output");
  EXPECT_GT(result["first"]["difference"], 1e-5);
  EXPECT_EQ(result["tolerance"], 1e-4);
  EXPECT_EQ(test::run_here({"diff", one, other, "tolerance=1"}).out, "no block differs in 4 steps\n");
}

/// Both ways, also where one run is a part of the other.
TEST(Diff, AShorterRunPartsWhereItEnds) {
  Runs runs;
  const auto whole = runs.train("whole", {"trace.blocks=hash"}),
             part = runs.train("part", {"trace.blocks=hash", "train.steps=2"});
  const std::string text = "the runs part at step 3: output of block input is not in both, or not of one size\n";
  EXPECT_EQ(told(whole, part, 1), text);
  EXPECT_EQ(told(part, whole, 1), text);
}

/// A loss scale that is too large at first.
TEST(Diff, WhatIsNotFiniteInBothIsEqual) {
  Runs runs;
  const auto run = runs.train("float16", {"trace.blocks=stats", "model=mlp", "train.precision=float16"});
  EXPECT_EQ(told(run, run), "no block differs in 4 steps\n");
}

TEST(Diff, HashesAreOfAllBits) {
  Runs runs;
  const auto one = runs.train("one", {"trace.blocks=hash", "train.shards=4"});
  EXPECT_EQ(told(one, runs.train("two", {"trace.blocks=hash", "train.shards=4", "ranks=2"})),
            "no block differs in 4 steps\n");
  EXPECT_EQ(told(one, runs.train("recomputed", {"trace.blocks=hash", "train.shards=4", "recompute=sqrt"})),
            "no block differs in 4 steps\n");
  EXPECT_EQ(told(one, runs.train("other", {"trace.blocks=hash", "train.shards=4", "seed=2"}), 1),
            "the runs part at step 1: output of block input differs in its bits\n");
}

TEST(Diff, ARunThatGoesOnHasTheSameLines) {
  Runs runs;
  const auto whole = runs.train("whole", {"trace.blocks=hash"});
  const auto part = runs.train("part", {"trace.blocks=hash", "train.steps=2", "checkpoint.every=1"});
  runs.train("part", {"trace.blocks=hash", "resume=auto"});
  const auto text = [](const std::string& run) {
    std::ifstream file(run + "/blocks.jsonl");
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  EXPECT_EQ(text(part), text(whole));
}

/// Also in another folder, which begins with the lines of the first.
TEST(Diff, ARunThatGoesOnIsTracedInOneWay) {
  Runs runs;
  const auto whole = runs.train("whole", {"trace.blocks=hash"});
  const auto part = runs.train("part", {"trace.blocks=hash", "train.steps=2", "checkpoint.every=1"});
  EXPECT_EQ(told(whole, runs.train("other", {"trace.blocks=hash", "resume=" + part})), "no block differs in 4 steps\n");
  const auto ended = test::run_here({"train", "resume=" + part, "train.steps=4", "trace.blocks=stats"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_NE(ended.err.find("error: trace.blocks is stats, but '" + part +
                           "/blocks.jsonl' was written with hash, wanted hash: or set out to another folder"),
            std::string::npos)
      << ended.err;
  runs.train("part", {"trace.blocks=none", "train.steps=3", "resume=auto"});
  runs.train("part", {"trace.blocks=hash", "resume=auto"});
  EXPECT_EQ(told(part, part), "no block differs in 3 steps\n");  // 1, 2 and 4
}

TEST(Diff, WhatCannotBeComparedIsRefused) {
  Runs runs;
  const auto hash = runs.train("hash", {"trace.blocks=hash"}), stats = runs.train("stats", {"trace.blocks=stats"});
  const auto none = runs.train("none", {});
  EXPECT_EQ(told(hash, stats, 65), "error: blocks of '" + hash + "' are told by trace.blocks=hash and those of '" +
                                       stats + "' by stats, wanted one way: train one of them again\n");
  EXPECT_EQ(told(hash, none, 65), "error: blocks '" + none +
                                      "/blocks.jsonl' are missing, wanted those of a run: train it with "
                                      "trace.blocks=hash or trace.blocks=stats\n");
  std::ofstream(none + "/blocks.jsonl") << "{}\n";
  EXPECT_EQ(told(hash, none, 65), "error: blocks '" + none + "/blocks.jsonl': line 1 is none of trace.blocks\n");
  EXPECT_EQ(test::run_here({"diff", hash}).status, 64);
  EXPECT_EQ(test::run_here({"train", "data=synthetic", "trace.blocks=hash", "parallel=dp", "ranks=2"}).status, 78);
}

}  // namespace
}  // namespace tandem::cli
