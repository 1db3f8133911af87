#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

namespace tandem::cli {
namespace {

using test::run_here;
using test::run_tandem;
using Words = std::vector<std::string>;

class ReshardCommand : public testing::Test {
 protected:
  void SetUp() override {
    const auto ended = run_tandem({"train", "data=synthetic", "data.size=8", "head.classes=31", "model=mlp", "ranks=3",
                                   "train.batch=12", "train.steps=10", "checkpoint.every=5", "threads=1",
                                   "report.compare=false", "out=" + path("run")});
    ASSERT_EQ(ended.status, 0) << ended.err;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void damage(const std::string& name) const {
    std::fstream file(path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('x');
  }

  test::TemporaryFolder folder_;
};

TEST_F(ReshardCommand, AnotherNumberOfRanksGoesOn) {
  const auto ended = run_here({"reshard", path("run"), "shares=2,1", "out=" + path("two"), "--json", "-"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto result = nlohmann::json::parse(ended.out);
  EXPECT_EQ(result["step"], 10);
  EXPECT_EQ(result["source_ranks"], 3);
  EXPECT_EQ(result["ranks"], 2);
  EXPECT_EQ(result["rows"]["head.weight"], (std::vector<int>{21, 10}));
  const auto resumed =
      run_tandem({"train", "--config", path("two/settings.toml"), "resume=auto", "train.steps=12", "--json", "-"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(nlohmann::json::parse(resumed.out)["steps"], 12);
  EXPECT_EQ(nlohmann::json::parse(resumed.out)["ranks"], 2);
  EXPECT_EQ(nlohmann::json::parse(resumed.out)["run"], path("two"));
}

TEST_F(ReshardCommand, ACheckpointKnowsItsSettingsWithoutItsRun) {
  std::filesystem::rename(path("run/checkpoints/step_00000010"), path("step_00000010"));
  std::filesystem::remove_all(path("run"));
  const auto ended = run_tandem({"train", "resume=" + path("step_00000010"), "out=" + path("on"), "data=synthetic",
                                 "data.size=8", "head.classes=31", "model=mlp", "ranks=3", "train.batch=12",
                                 "train.steps=12", "threads=1", "report.compare=false"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto merged = run_here({"reshard", path("step_00000010"), "merge=" + path("m.safetensors")});
  ASSERT_EQ(merged.status, 0) << merged.err;
  const auto card = test::slurp(path("step_00000010/model.json"));
  EXPECT_EQ(nlohmann::json::parse(card)["settings"]["head.classes"], "31");
  EXPECT_NE(test::slurp(path("m.safetensors")).find("tandem.model"), std::string::npos);
  test::spill(path("step_00000010/model.json"), "{" + card.substr(1, card.size() - 2) + " ");
  const auto damaged = run_here({"reshard", path("step_00000010"), "merge=" + path("n.safetensors")});
  EXPECT_EQ(damaged.status, 65);
  EXPECT_NE(damaged.err.find("is damaged: model.json has checksum "), std::string::npos) << damaged.err;
}

TEST_F(ReshardCommand, ANamedCheckpointIsNoOther) {
  damage("run/checkpoints/step_00000010/rank_0000.safetensors");
  const auto named = run_here({"reshard", path("run/checkpoints/step_00000010"), "merge=" + path("m.safetensors")});
  EXPECT_EQ(named.status, 65);
  EXPECT_NE(named.err.find("error: checkpoint '" + path("run/checkpoints/step_00000010") + "' is damaged: "),
            std::string::npos)
      << named.err;
  EXPECT_FALSE(std::filesystem::exists(path("m.safetensors")));
  const auto any = run_here({"reshard", path("run"), "merge=" + path("m.safetensors")});
  EXPECT_EQ(any.status, 0);
  EXPECT_NE(any.err.find("warning: checkpoint step_00000010 is damaged: "), std::string::npos) << any.err;
  EXPECT_NE(any.out.find("step_00000005 of 3 ranks"), std::string::npos) << any.out;
}

TEST_F(ReshardCommand, NothingIsOverwritten) {
  const auto shard = path("run/checkpoints/step_00000010/rank_0000.safetensors");
  const auto before = test::slurp(shard);
  EXPECT_EQ(run_here({"reshard", path("run"), "merge=" + shard}).err,
            "error: merge is '" + shard + "', which exists, wanted a new file\n");
  EXPECT_EQ(test::slurp(shard), before);
  EXPECT_EQ(run_here({"reshard", path("run"), "out=" + path("run")}).err,
            "error: out is '" + path("run") + "', which holds checkpoints, wanted a new folder\n");
}

TEST_F(ReshardCommand, OneProcessOfAJobDoesIt) {
  const auto ended = run_tandem({"launch", "-n", "3", "--", "reshard", path("run"), "ranks=2", "out=" + path("two")});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out.find("written"), ended.out.rfind("written"));
}

TEST(Reshard, FaultsAreNamed) {
  EXPECT_EQ(run_here({"reshard"}).err,
            "error: reshard: the checkpoint is missing, wanted 'tandem reshard RUN [key=value...]'\n");
  EXPECT_EQ(run_here({"reshard", "x", "shares=0,0", "out=y"}).err,
            "error: shares are 0,0, wanted numbers that are not all 0 and have a sum\n");
  EXPECT_EQ(run_here({"reshard", "x", "shares=1,2", "ranks=3", "out=y"}).err,
            "error: shares has 2 numbers with ranks 3, wanted one a rank: leave ranks out\n");
  EXPECT_EQ(run_here({"reshard", "x"}).err,
            "error: out and merge are empty, wanted a place for the result: add out=FOLDER for a checkpoint, or "
            "merge=FILE for a file of all weights\n");
}

}  // namespace
}  // namespace tandem::cli
