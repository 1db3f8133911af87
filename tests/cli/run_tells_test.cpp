#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>

#include "tandem/cli/run/folder.h"
#include "tandem/cli/run/observer.h"
#include "tandem/cli/run/report.h"
#include "tandem/job/job.h"
#include "tests/cli/run_command.h"
#include "tests/storage/disk_limit.h"
#include "tests/support/files.h"

// What a run tells, as a user reads it: the bar, the log, the report, warnings.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using test::run_tandem;
using test::slurp;
using Words = std::vector<std::string>;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// Epochs of five steps: 56 images of 20 characters.
class RunTells : public testing::Test {
 protected:
  std::string out(const std::string& name) const { return "out=" + (folder_ / name).string(); }
  std::string from(const std::string& key) const { return key + "=" + (folder_ / "run").string(); }

  Words job(const Words& more) const {
    Words words = {"train",
                   "data.classes=20",
                   "data.train_fonts=bkai,gkai,noto-sans",
                   "train.batch=10",
                   "data.test_fonts=ukai",
                   "model=mlp",
                   "train.steps=18",
                   "threads=1",
                   "report.compare=false",
                   "eval.every=0",
                   "checkpoint.every=5",
                   "checkpoint.keep=9",
                   "train.log_every=1",
                   "train.schedule=constant"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  Words best_job(const Words& more) const {
    auto words = job({"eval.every=1", "checkpoint.best=loss", "checkpoint.keep=1", "train.lr=0.005"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  fs::path checkpoint(const std::string& run, const std::string& step) const {
    return folder_ / run / "checkpoints" / ("step_000000" + step);
  }

  nlohmann::json result(const std::string& name) const {
    return nlohmann::json::parse(slurp(folder_ / name / "result.json"));
  }

  /// The steps of a log's records of one kind, in the order of the lines.
  std::vector<int> logged(const std::string& name, const std::string& event) const {
    std::vector<int> steps;
    std::istringstream lines(slurp(folder_ / name / "log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record["event"] == event) steps.push_back(record["step"]);
    }
    return steps;
  }

  /// The steps at which the report's curve of the loss has a point.
  std::vector<int> drawn(const std::string& name) const {
    static const std::regex point("<title>loss [0-9.]+ at ([0-9]+)</title>");
    const auto page = slurp(folder_ / name / "report.html");
    std::vector<int> steps;
    for (std::sregex_iterator at(page.begin(), page.end(), point), end; at != end; ++at)
      steps.push_back(std::stoi((*at)[1]));
    return steps;
  }

  test::TemporaryFolder folder_;
};

std::vector<int> numbers(int first, int last) {
  std::vector<int> all(last - first + 1);
  std::iota(all.begin(), all.end(), first);
  return all;
}

TEST_F(RunTells, ASettingWithoutEffectIsNoPartOfTheJob) {
  ASSERT_EQ(run_tandem(job({"head=softmax", "head.margin=0.3", "train.steps=12", out("run")})).status, 0);
  const auto same = run_tandem(job({"head=softmax", "head.scale=30", "resume=auto", out("run")}));
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_NE(same.err.find("resume   goes on after step 12\n"), std::string::npos) << same.err;
  const auto other = run_tandem(job({"head=cosface", "head.margin=0.3", "resume=auto", out("run")}));
  EXPECT_EQ(other.status, 78);
  EXPECT_NE(other.err.find("is of another job: head is softmax, wanted cosface\n"), std::string::npos) << other.err;
}

/// The outer optimizer of diloco has a state that no other strategy has.
TEST_F(RunTells, ACheckpointOfAnotherStrategyStillHasWeights) {
  ASSERT_EQ(run_tandem(job({"train.steps=4", out("run")})).status, 0);
  const auto other = run_tandem(job({"ranks=2", "parallel=diloco", "train.steps=8", out("other"), from("resume")}));
  EXPECT_EQ(other.status, 65);
  EXPECT_NE(other.err.find("see the warnings above; model.weights="
                           "CHECKPOINT starts another job from its weights, and resume=none begins anew\n"),
            std::string::npos)
      << other.err;
  const auto begun =
      run_tandem(job({"ranks=2", "parallel=diloco", "train.steps=4", out("other"), from("model.weights")}));
  EXPECT_EQ(begun.status, 0) << begun.err;
}

TEST_F(RunTells, TheReportOfAResumedRunHasTheWholeCurve) {
  ASSERT_EQ(run_tandem(job({"train.steps=12", out("run")})).status, 0);
  const double before = result("run")["seconds"];
  ASSERT_EQ(run_tandem(job({"resume=auto", out("run")})).status, 0);
  EXPECT_EQ(drawn("run"), numbers(1, 18));
  const double own = result("run")["seconds"], total = result("run")["total_seconds"];
  EXPECT_NEAR(total, before + own, 1e-9);
  EXPECT_EQ(logged("run", "step"), numbers(1, 18));
  EXPECT_EQ(logged("run", "resume"), std::vector<int>{12});
}

/// Ten steps that learn, and eight with a learning rate that spoils what was learned.
TEST_F(RunTells, TheBestTestIsToldAndItsCheckpointHasAName) {
  ASSERT_EQ(run_tandem(best_job({"train.steps=10", out("run")})).status, 0);
  EXPECT_EQ(result("run")["best"]["step"], 10);
  const auto ended = run_tandem(best_job({"resume=auto", "train.lr=10", "ranks=2", out("run")}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto best = result("run")["best"];
  EXPECT_EQ(best["metric"], "loss");
  EXPECT_EQ(best["step"], 10);
  EXPECT_LT(best["value"], result("run")["test_loss"]);
  EXPECT_EQ(logged("run", "best"), (std::vector<int>{5, 10}));
  const auto name = (folder_ / "run" / "checkpoints" / "best").string();
  EXPECT_EQ(best["checkpoint"], name);
  EXPECT_NE(ended.out.find("best     loss "), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find(" after step 10, " + name + "\n"), std::string::npos) << ended.out;
  const auto tested = run_tandem({"eval", "resume=" + name, "--json", "-"});
  ASSERT_EQ(tested.status, 0) << tested.err;
  EXPECT_EQ(nlohmann::json::parse(tested.out)["steps"], 10);
  EXPECT_NEAR(nlohmann::json::parse(tested.out)["loss"].get<double>(), best["value"].get<double>(), 1e-5);
  const auto merged = run_tandem({"reshard", name, "merge=" + (folder_ / "best.safetensors").string(), "--json", "-"});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(nlohmann::json::parse(merged.out)["step"], 10);
  const auto begun = run_tandem(job({"train.steps=2", "model.weights=" + name, out("begun")}));
  EXPECT_EQ(begun.status, 0) << begun.err;
  EXPECT_TRUE(result("begun")["best"].is_null());
}

TEST_F(RunTells, ABestTestThatStaysInTheOldRunIsToldThere) {
  ASSERT_EQ(run_tandem(best_job({"train.steps=10", out("run")})).status, 0);
  const auto ended = run_tandem(best_job({from("resume"), "train.lr=10", out("other")}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(result("other")["best"]["step"], 10);
  EXPECT_EQ(result("other")["best"]["checkpoint"], "");
  EXPECT_NE(ended.out.find(" after step 10, whose checkpoint is in the run from which this one goes on\n"),
            std::string::npos)
      << ended.out;
}

TEST_F(RunTells, ABestThatNoTestMeasuresIsRefused) {
  const auto other = run_tandem(job({"checkpoint.best=top9", out("run")}));
  EXPECT_EQ(other.status, 78);
  EXPECT_EQ(other.err,
            "error: checkpoint.best is 'top9', wanted none, top1, top5 or loss: did you mean top1 or top5?\n");
  const auto none = run_tandem({"train", "data=synthetic", "checkpoint.best=top1", out("run")});
  EXPECT_EQ(none.status, 78);
  EXPECT_EQ(none.err,
            "error: checkpoint.best is top1 and the data has no test images, wanted none: glyphs take data.test_fonts, "
            "folders a test folder or data.hold_out\n");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(RunTells, AveragesAreWhatIsTestedAndSaved) {
  const Words words = {"train.ema=0.8", "data.unseen=6", "train.steps=12", "eval.every=1", "ranks=2"};
  auto run = words;
  run.insert(run.end(), {"parallel=zero1", out("run")});
  ASSERT_EQ(run_tandem(job(run)).status, 0);
  const auto tested = run_tandem({"eval", from("resume"), "ranks=1", "--json", "-"});
  ASSERT_EQ(tested.status, 0) << tested.err;
  const auto scores = nlohmann::json::parse(tested.out);
  EXPECT_NEAR(scores["loss"].get<double>(), result("run")["test_loss"].get<double>(), 1e-4);
  EXPECT_EQ(scores["top1"], result("run")["top1"]);
  EXPECT_NEAR(scores["retrieval"]["map"].get<double>(), result("run")["retrieval"]["map"].get<double>(), 1e-6);
  const auto without = run_tandem(job({"data.unseen=6", "resume=auto", out("run")}));
  EXPECT_EQ(without.status, 78);
  EXPECT_NE(
      without.err.find("error: train.ema is 0 with a checkpoint of averages, wanted 0.800000 as there: to train on "
                       "from the averages, start another run with them as its weights\n"),
      std::string::npos)
      << without.err;
  ASSERT_EQ(run_tandem(job({"train.steps=4", out("plain")})).status, 0);
  const auto late = run_tandem(job({"train.ema=0.8", "resume=auto", out("plain")}));
  EXPECT_EQ(late.status, 78);
  EXPECT_NE(late.err.find("is of another job: train.ema is missing, wanted 0.8\n"), std::string::npos) << late.err;
}

TEST_F(RunTells, EqualWeightsHaveEqualHashesOnAnyNumberOfRanks) {
  ASSERT_EQ(run_tandem(job({"ranks=2", "train.steps=7", out("run")})).status, 0);
  const std::string hash = result("run")["weights_hash"];
  EXPECT_EQ(hash.size(), 32U);
  for (const std::string ranks : {"ranks=1", "ranks=3"}) {
    const auto again = run_tandem(job({ranks, "train.steps=7", "resume=auto", out("run"), "--json", "-"}));
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(nlohmann::json::parse(again.out)["weights_hash"], hash) << ranks;
  }
  ASSERT_EQ(run_tandem(job({"train.steps=7", "seed=2", out("other")})).status, 0);
  EXPECT_NE(result("other")["weights_hash"], hash);
}

TEST_F(RunTells, TheFirstLossesAreGivenInFull) {
  ASSERT_EQ(run_tandem(job({"train.steps=24", "train.log_every=1000", out("run")})).status, 0);
  const auto losses = result("run")["losses"];
  ASSERT_EQ(losses.size(), 20U);
  std::ifstream log(folder_ / "run" / "log.jsonl");
  std::string line;
  std::getline(log, line);
  EXPECT_EQ(losses[0].get<double>(), nlohmann::json::parse(line)["loss"].get<double>());
  ASSERT_EQ(run_tandem(job({"train.steps=10", out("short")})).status, 0);
  const auto first = result("short")["losses"];
  ASSERT_EQ(first.size(), 10U);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(first[i], losses[i]) << i;
}

TEST_F(RunTells, StepsDoneAgainAreDrawnOnce) {
  ASSERT_EQ(run_tandem(job({"train.steps=12", out("run")})).status, 0);
  fs::remove_all(checkpoint("run", "12"));
  ASSERT_EQ(run_tandem(job({"resume=auto", "train.log_every=4", out("run")})).status, 0);
  auto steps = numbers(1, 10);          // of the first attempt, up to the checkpoint
  const auto again = {12, 15, 16, 18};  // every fourth, and the last of an epoch
  steps.insert(steps.end(), again);
  EXPECT_EQ(drawn("run"), steps);
  steps = numbers(1, 12);  // the log keeps what happened
  steps.insert(steps.end(), again);
  EXPECT_EQ(logged("run", "step"), steps);
  EXPECT_EQ(logged("run", "resume"), std::vector<int>{10});
}

TEST_F(RunTells, ARunThatGoesOnElsewhereTakesItsCurveAlong) {
  ASSERT_EQ(run_tandem(job({"train.steps=12", out("run")})).status, 0);
  const auto from = "resume=" + checkpoint("run", "05").string();
  ASSERT_EQ(run_tandem(job({from, "train.steps=15", out("new")})).status, 0);
  EXPECT_EQ(drawn("new"), numbers(1, 15));
  EXPECT_EQ(logged("new", "step"), numbers(1, 15));
  ASSERT_EQ(run_tandem(job({"resume=auto", out("new")})).status, 0);
  EXPECT_EQ(drawn("new"), numbers(1, 18));
  EXPECT_GT(result("new")["total_seconds"], result("new")["seconds"]);
  EXPECT_EQ(drawn("run"), numbers(1, 12));
}

TEST_F(RunTells, TheBarOfEachEpochEndsWithItsOwnLoss) {
  const auto ended = run_tandem(job({"train.log_every=1000", out("run")}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(logged("run", "step"), (std::vector<int>{1, 5, 10, 15, 18}));
  std::set<std::string> losses;
  for (const std::string epoch : {"1: 100%[^\n]* 5/5", "2: 100%[^\n]* 5/5", "3: 100%[^\n]* 5/5", "4: 100%[^\n]* 3/3"}) {
    std::smatch loss;
    const std::regex bar("epoch " + epoch + " [^\n]*, loss=([0-9.]+), lr=0.3\\]\n");
    ASSERT_TRUE(std::regex_search(ended.err, loss, bar)) << ended.err;
    losses.insert(loss[1]);
  }
  EXPECT_EQ(losses.size(), 4U) << ended.err;
}

TEST_F(RunTells, TheReportRoundsAndShortRunsHaveADecimal) {
  const auto summary = [&](double seconds, double rate) {
    Trained trained;
    trained.outcome.total_seconds = seconds;
    trained.outcome.seconds = 1000;
    trained.outcome.images = std::llround(1000 * rate);
    trained.ranks.resize(1);
    trained.folder = folder_.path();
    write_run_report(job::read_job(settings::Settings(job::schema())), trained, {}, nullptr);
    return slurp(folder_ / "report.html");
  };
  const auto card = [](const std::string& value, const std::string& name) {
    return "<b>" + value + "</b><span>" + name + "</span>";
  };
  EXPECT_NE(summary(12.7, 1234.5).find(card("13", "training seconds")), std::string::npos);
  EXPECT_NE(summary(12.7, 1234.5).find(card("1,235", "images/s")), std::string::npos);
  EXPECT_NE(summary(0.44, 99).find(card("0.4", "training seconds")), std::string::npos);
  EXPECT_NE(summary(9.96, 99).find(card("10", "training seconds")), std::string::npos);
}

TEST_F(RunTells, AFullDiskLeavesTheOldResultAndNothingElse) {
  const auto path = folder_ / "result.json";
  write_run_file(path, "{}\n");
  testing::internal::CaptureStderr();
  {
    const storage::DiskLimit full(1000);  // the captured warning counts too
    write_run_file(path, std::string(5000, 'x'));
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: cannot write '" + path.string() +
                ".tmp': File too large: free some space there or choose another folder\n");
  EXPECT_EQ(slurp(path), "{}\n");
  EXPECT_FALSE(fs::exists(folder_ / "result.json.tmp"));
}

TEST_F(RunTells, ARemovedFolderIsToldOnceAndMadeWholeAgain) {
  test::Running process(test::tandem_command(job({"train.steps=1000000", "checkpoint.keep=2", out("run")})));
  const auto wait_for = [](const fs::path& path) {
    for (int i = 0; i < 3000 && !fs::exists(path); ++i) usleep(10'000);
    return fs::exists(path);
  };
  ASSERT_TRUE(wait_for(checkpoint("run", "05")));
  fs::rename(folder_ / "run", folder_ / "away");
  fs::remove_all(folder_ / "away");
  ASSERT_TRUE(wait_for(folder_ / "run" / "settings.toml"));
  process.signal(SIGTERM);
  const auto ended = process.wait();
  EXPECT_EQ(ended.status, 75) << ended.err;
  EXPECT_EQ(count_of(ended.err, "warning: run's files in '" + (folder_ / "run").string() +
                                    "' were removed during training: log, events and settings are put back\n"),
            1U)
      << ended.err;
  for (const std::string name : {"settings.toml", "result.json", "report.html", "checkpoints", "events"})
    EXPECT_TRUE(fs::exists(folder_ / "run" / name)) << name;
  const int steps = result("run")["steps"];
  EXPECT_EQ(logged("run", "step"), numbers(1, steps));
}

TEST_F(RunTells, TheBarSaysHowLongTheWholeTrainingTakes) {
  RunObserver observer({.folder = folder_.path(), .steps_per_epoch = 9, .steps = 90, .first_step = 27});
  testing::internal::CaptureStderr();
  observer.on_step(28, 3, 0.5, 2.0);
  observer.on_step(29, 3, 0.5, 2.0);
  observer.finish();
  const auto bar = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::regex_search(bar, std::regex("epoch 4: .*, [0-9]+ s left, loss=2, lr=0.5\\]\n$"))) << bar;
}

TEST_F(RunTells, FilesThatCannotBePutBackAreToldOnceToo) {
  RunObserver observer({.folder = folder_.path(), .steps_per_epoch = 9, .steps = 9});
  fs::remove_all(folder_ / "events");
  test::spill(folder_ / "events", "in the way");
  testing::internal::CaptureStderr();
  for (int step = 1; step <= 3; ++step) observer.on_step(step, 0, 0.5, 2.0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: run's files in '" + folder_.path().string() +
                "' were removed during training and cannot be put back: cannot make folder '" +
                (folder_ / "events").string() + "': File exists\n");
  EXPECT_EQ(read_history(folder_ / "log.jsonl", 9).lines.size(), 3U);
}

TEST_F(RunTells, ALossThatDoesNotFallIsTold) {
  const auto at_rate = [&](const std::string& rate) {
    const auto ended = run_tandem(job({"model=resnet_glyph", "train.lr=" + rate, "train.steps=54", out(rate)}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended.err;
  };
  const auto stuck = at_rate("50"), learns = at_rate("0.3");
  EXPECT_EQ(count_of(stuck, "warning: loss has not fallen: "), 1U) << stuck;
  EXPECT_EQ(count_of(learns, "loss has not fallen"), 0U) << learns;
}

}  // namespace
}  // namespace tandem::cli
