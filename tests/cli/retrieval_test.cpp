#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/market_folder.h"
#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// Identities that were not learned: people in Market-1501's layout, unseen characters, pairs.
namespace tandem::cli {
namespace {

using test::run_tandem;
using Words = std::vector<std::string>;

class RetrievalRun : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  nlohmann::json result(Words words, const std::string& command = "train") const {
    words.insert(words.begin(), {command, "--json", "-", "threads=1"});
    if (command == "train") words.emplace_back("report.compare=false");
    const auto ended = run_tandem(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return nlohmann::json::parse(ended.out);
  }

  test::TemporaryFolder folder_;
};

TEST_F(RetrievalRun, PeopleInMarketsFolders) {
  test::write_market_folder(path("market"), 60, 15);
  const Words job = {"data=market1501:" + path("market"),
                     "data.size=32",
                     "model=resnet_glyph",
                     "embedding=32",
                     "head=am-softmax",
                     "head.scale=30",
                     "head.margin=0.35",
                     "head.classes=30000",
                     "head.fused_update=true",
                     "train.batch=60",
                     "train.epochs=2"};
  auto words = job;
  words.insert(words.end(), {"ranks=3", "out=" + path("run")});
  const auto trained = result(words);
  EXPECT_EQ(trained["classes"], 30'000);
  EXPECT_EQ(trained["test_images"], 0);
  const auto& retrieval = trained["retrieval"];
  EXPECT_EQ(retrieval["queries"], 15);
  EXPECT_EQ(retrieval["valid"], 15);
  EXPECT_GT(retrieval["map"].get<double>(), 0.1);  // by chance: about 15 of 200 images
  EXPECT_GE(retrieval["cmc"][9].get<double>(), retrieval["cmc"][0].get<double>());
  const auto evaluated = result({"resume=" + path("run"), "ranks=1"}, "eval");
  EXPECT_NEAR(evaluated["retrieval"]["map"], retrieval["map"], 1e-6);
}

TEST_F(RetrievalRun, UnseenCharactersOnAnyNumberOfRanks) {
  const Words job = {"data.classes=30", "data.unseen=20", "model=mlp",
                     "train.batch=30",  "train.steps=5",  "train.precision=float64"};  // no two images are as near
  auto words = job;
  words.insert(words.end(), {"ranks=2", "out=" + path("run")});
  const auto retrieval = result(words)["retrieval"];
  EXPECT_EQ(retrieval["queries"], 20);
  for (const char* ranks : {"ranks=1", "ranks=3"}) {
    const auto again = result({"resume=" + path("run"), ranks}, "eval")["retrieval"];
    EXPECT_NEAR(again["map"], retrieval["map"], 1e-6);
    EXPECT_NEAR(again["minp"], retrieval["minp"], 1e-6);
  }
}

TEST_F(RetrievalRun, BadPairsAreToldBeforeTheTraining) {
  test::spill(path("bad.bin"), "no pickle");
  const auto ended = run_tandem({"train", "data.classes=30", "model=mlp", "train.steps=2",
                                 "eval.pairs=" + path("bad.bin"), "out=" + path("run")});
  EXPECT_EQ(ended.status, 65);
  EXPECT_NE(ended.err.find(path("bad.bin")), std::string::npos) << ended.err;
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(RetrievalRun, AClassCountBelowTheDatasIsNamed) {
  const auto ended = run_tandem({"train", "data.classes=30", "head.classes=20", "model=mlp", "out=" + path("run")});
  EXPECT_EQ(ended.status, 78);
  EXPECT_NE(ended.err.find("error: head.classes is 20, wanted at least 30 as the data has"), std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace tandem::cli
