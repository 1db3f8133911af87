#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// The program searches as a user has it do, on characters from the machine's fonts.
namespace tandem::cli {
namespace {

using test::run_tandem;
using Words = std::vector<std::string>;

class SearchRun : public testing::Test {
 protected:
  Words words(const Words& more) const {
    Words all = {"search",          "data=glyphs",    "data.classes=20",  "data.size=8",
                 "model=search:s2", "model.cells=3",  "model.channels=4", "train.batch=12",
                 "train.steps=5",   "train.shards=6", "search.lr=0.05",   "report.compare=false"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string out(const std::string& name) const { return "out=" + (folder_ / name).string(); }

  nlohmann::json result(const std::string& name) const {
    return nlohmann::json::parse(test::slurp(folder_ / name / "result.json"));
  }

  void expect_trains(const std::string& genotype) const {
    const auto ended =
        run_tandem({"train", "data.classes=20", "data.size=8", "model=genotype:" + genotype, "model.cells=3",
                    "model.channels=4", "train.steps=2", "train.batch=12", "report.compare=false", out("trained")});
    EXPECT_EQ(ended.status, 0) << ended.err;
  }

  test::TemporaryFolder folder_;
};

TEST_F(SearchRun, FindsTheSameOnThreadsProcessesAndAfterAStop) {
  for (const std::string ranks : {"1", "2", "3"}) {
    const auto ended = run_tandem(words({"ranks=" + ranks, out("threads" + ranks)}));
    ASSERT_EQ(ended.status, 0) << ended.err;
  }
  auto processes = words({out("processes")});
  processes.insert(processes.begin(), {"launch", "-n", "2", "--"});
  ASSERT_EQ(run_tandem(processes).status, 0);
  ASSERT_EQ(run_tandem(words({"ranks=2", "train.steps=2", out("begun")})).status, 0);
  const auto rest = run_tandem(words({"ranks=3", "resume=" + (folder_ / "begun").string(), out("rest")}));
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(result("rest")["steps"], 5);
  ASSERT_EQ(run_tandem(words({"recompute=sqrt", out("recomputed")})).status, 0);
  const auto one = result("threads1");
  EXPECT_EQ(one["alphas_hash"].get<std::string>().size(), 32U);
  for (const std::string name : {"threads2", "threads3", "processes", "rest", "recomputed"}) {
    EXPECT_EQ(result(name)["alphas_hash"], one["alphas_hash"]) << name;
    EXPECT_EQ(result(name)["genotype"], one["genotype"]) << name;
    EXPECT_EQ(result(name)["weights_hash"], one["weights_hash"]) << name;
  }
  EXPECT_EQ(result("threads2")["memory"]["ranks"][1]["train"]["peak_bytes"],
            result("threads2")["memory"]["ranks"][1]["train"]["predicted_peak_bytes"]);
}

TEST_F(SearchRun, WhatItFoundIsTrained) {
  ASSERT_EQ(
      run_tandem(words({"train.steps=4", "ranks=2", "search.genotype=best", "search.guard=true", out("found")})).status,
      0);
  const auto genotype = (folder_ / "found" / "genotype.txt").string();
  EXPECT_TRUE(test::slurp(genotype).starts_with("Genotype(normal=["));
  EXPECT_EQ(test::slurp(genotype), result("found")["genotype"].get<std::string>() + "\n");
  const auto lines = test::slurp(folder_ / "found" / "alphas.jsonl");
  const auto line = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(line["step"], 4);
  EXPECT_EQ(line["normal"].size(), 14U);
  EXPECT_TRUE(line["eigenvalue"].is_number());
  EXPECT_EQ(line["normal"][0].size(), 2U);
  expect_trains(genotype);
}

/// What a step of gdas draws is not known before; its bound is that of the largest operations.
TEST_F(SearchRun, TheBytesOfEachMethodArePredicted) {
  for (const std::string method : {"pc-darts", "darts-minus", "gdas"}) {
    SCOPED_TRACE(method);
    const auto ended = run_tandem(words(
        {"search.method=" + method, "search.partial=2", "train.steps=2", "train.shards=0", "ranks=2", out(method)}));
    ASSERT_EQ(ended.status, 0) << ended.err;
    const auto ranks = result(method)["memory"]["ranks"];
    for (const auto& rank : ranks) {
      const auto peak = rank["train"]["peak_bytes"].get<int64_t>();
      const auto predicted = rank["train"]["predicted_peak_bytes"].get<int64_t>();
      if (method != "gdas") {
        EXPECT_EQ(peak, predicted);
      } else {
        EXPECT_LE(peak, predicted);
        EXPECT_GT(peak, predicted / 2);
        EXPECT_EQ(predicted, ranks[0]["train"]["predicted_peak_bytes"]);
      }
    }
  }
}

TEST_F(SearchRun, ACellOfNasBench201IsFoundAndTrained) {
  ASSERT_EQ(run_tandem(words({"model=search:nas-bench-201", "ranks=2", out("found")})).status, 0);
  const auto cell = (folder_ / "found" / "genotype.txt").string();
  EXPECT_TRUE(test::slurp(cell).starts_with("|"));
  EXPECT_TRUE(test::slurp(folder_ / "found" / "cell.svg").starts_with("<svg"));
  const auto line = nlohmann::json::parse(test::slurp(folder_ / "found" / "alphas.jsonl"));
  EXPECT_EQ(line["cell"].size(), 6U);
  EXPECT_EQ(line["cell"][0].size(), 5U);
  expect_trains(cell);
}

TEST_F(SearchRun, WhatItCannotSearchIsRefused) {
  const auto model = run_tandem({"search", "model=resnet18"});
  EXPECT_EQ(model.status, 78);
  EXPECT_EQ(
      model.err,
      "error: model is 'resnet18' in a search, wanted search:darts, search:s1, search:s2, search:s3, search:s4 or "
      "search:nas-bench-201: tandem train trains it\n");
  const auto space = run_tandem({"search", "model=search:dart"});
  EXPECT_EQ(space.status, 78);
  EXPECT_EQ(space.err,
            "error: model is 'search:dart', wanted search:darts, search:s1, search:s2, search:s3, search:s4 or "
            "search:nas-bench-201\n");
  ASSERT_EQ(run_tandem({"train", "data.classes=10", "train.batch=16", "train.steps=1", out("trained")}).status, 0);
  const auto resumed = run_tandem({"search", "resume=" + (folder_ / "trained").string()});
  EXPECT_EQ(resumed.status, 78);
  EXPECT_NE(resumed.err.find("model is 'resnet_glyph' in a search, wanted search:darts,"), std::string::npos)
      << resumed.err;
  const auto small = run_tandem(words({"train.batch=600", out("small")}));
  EXPECT_EQ(small.status, 78);
  EXPECT_NE(small.err.find("images for the alphas, wanted at most as many: lower train.batch or search.share"),
            std::string::npos)
      << small.err;
  const auto cells = run_tandem(words({"model.cells=2", out("cells")}));
  EXPECT_EQ(cells.status, 78);
  EXPECT_EQ(cells.err, "error: model.cells is 2, wanted 3..1000\n");
  const auto rows = run_tandem(words({"model=search:nas-bench-201", "model.cells=8", out("rows")}));
  EXPECT_EQ(rows.status, 78);
  EXPECT_EQ(rows.err, "error: model.cells is 8, wanted a multiple of 3, the rows of cells of NAS-Bench-201\n");
  const auto channels = run_tandem(words({"search.method=pc-darts", out("channels")}));
  EXPECT_EQ(channels.status, 78);
  EXPECT_EQ(channels.err,
            "error: model.channels is 4 with pc-darts, wanted a multiple of 8, twice the channels of which one goes "
            "through the operations\n");
}

}  // namespace
}  // namespace tandem::cli
