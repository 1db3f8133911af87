#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// Where a run that resumes goes on, and what it leaves behind.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using test::run_tandem;
using test::slurp;
using Words = std::vector<std::string>;

/// In a working folder of its own, with the run `run` of 12 steps.
class ResumeRun : public testing::Test {
 protected:
  ResumeRun() {
    fs::current_path(folder_.path());
    EXPECT_EQ(train({"out=run"}).status, 0);
  }
  ~ResumeRun() override { fs::current_path(before_); }

  static Words job(const Words& more) {
    Words words = {
        "train",          "data=synthetic", "data.size=8",          "head.classes=10",   "model=mlp",
        "embedding=8",    "train.batch=6",  "train.steps=12",       "train.log_every=1", "checkpoint.every=4",
        "threads=1",      "train.lr=0.1",   "report.compare=false", "eval.every=0",      "checkpoint.keep=9",
        "train.clip=0.01"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static test::Ended train(const Words& more) { return run_tandem(job(more)); }

  static std::vector<int> logged(const fs::path& run, const std::string& event) {
    std::vector<int> steps;
    std::istringstream lines(slurp(run / "log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record["event"] == event) steps.push_back(record["step"]);
    }
    return steps;
  }
  static std::set<std::string> names_in(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
  }
  static nlohmann::json result(const fs::path& run) { return nlohmann::json::parse(slurp(run / "result.json")); }
  static std::vector<int> numbers(int first, int last) {
    std::vector<int> all(last - first + 1);
    std::iota(all.begin(), all.end(), first);
    return all;
  }
  static bool tells(const test::Ended& ended, const std::string& line) {
    return ended.err.find(line) != std::string::npos;
  }

  fs::path before_ = fs::current_path();
  test::TemporaryFolder folder_;
};

TEST_F(ResumeRun, TakesTheRunsSettings) {
  const auto ended = run_tandem({"train", "resume=run", "train.steps=14"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(logged("run", "step"), numbers(1, 14));
  EXPECT_EQ(names_in("run/checkpoints"),
            (std::set<std::string>{"step_00000004", "step_00000008", "step_00000012", "step_00000014"}));
  const auto elsewhere = run_tandem({"train", "resume=run", "train.steps=15", "out=other"});
  ASSERT_EQ(elsewhere.status, 0) << elsewhere.err;
  EXPECT_EQ(result("other")["steps"], 15);
}

/// From 2 x 2 ranks to one and back.
TEST_F(ResumeRun, OnAnotherMeshHasTheSameWeights) {
  const std::vector<std::string> pixels = {"model=none", "embedding=64", "data.size=8"};
  const auto train_on = [&](std::vector<std::string> words) {
    words.insert(words.end(), pixels.begin(), pixels.end());
    return train(words);
  };
  ASSERT_EQ(train_on({"ranks=4", "mesh.tensor=2", "train.steps=4", "out=mesh"}).status, 0);
  ASSERT_EQ(train_on({"resume=mesh", "ranks=1", "mesh.tensor=1", "train.steps=4", "out=one"}).status, 0);
  ASSERT_EQ(train_on({"resume=one", "ranks=4", "mesh.tensor=2", "head.over=data", "train.steps=4", "out=back"}).status,
            0);
  EXPECT_EQ(result("one")["weights_hash"], result("mesh")["weights_hash"]);
  EXPECT_EQ(result("back")["weights_hash"], result("mesh")["weights_hash"]);
  const auto refused = train_on({"resume=mesh", "ranks=3", "out=three"});
  EXPECT_EQ(refused.status, 78);
  EXPECT_TRUE(tells(refused, "mesh.tensor is 2 with 3 ranks, wanted a number that divides them")) << refused.err;
}

/// Bit for bit, there and back.
TEST_F(ResumeRun, OfADividedModelIsTheSameOnAnyPlan) {
  for (const Words& model : {Words{"model=vit_tiny", "model.patch=4", "train.lr=0.001"}, Words{"model=resnet_glyph"}}) {
    const auto train_on = [&](const std::string& plan, const Words& more) {
      Words words = model;
      words.insert(words.end(), more.begin(), more.end());
      words.insert(words.end(), {"train.steps=4", "train.schedule=constant"});
      std::istringstream list(plan);
      for (std::string word; list >> word;) words.push_back(word);
      const auto ended = train(words);
      EXPECT_EQ(ended.status, 0) << plan << ended.err;
    };
    for (const auto* folder : {"0", "1", "2", "3", "4", "5"}) fs::remove_all(folder);
    train_on("ranks=2 parallel=tensor", {"out=0"});
    int run = 0;
    for (const std::string plan : {"ranks=1 parallel=ddp", "ranks=3 parallel=tensor", "ranks=2 parallel=fsdp",
                                   "ranks=4 parallel=zero1 mesh.tensor=2", "ranks=2 parallel=tensor mesh.tensor=2"}) {
      const auto before = std::to_string(run++);
      train_on(plan, {"resume=" + before, "out=" + std::to_string(run)});
      EXPECT_EQ(result(std::to_string(run))["weights_hash"], result("0")["weights_hash"]) << plan;
    }
  }
}

TEST_F(ResumeRun, ASettingsFileMayHaveAFormerName) {
  auto text = slurp("run/settings.toml");
  const auto at = text.find("[mesh]\n"), next = text.find("\n[", at + 1);
  text.replace(at, next - at, "[fsdp]\nshard = 0\n");
  text.erase(text.find("\n[fsdp]\n", at + 1), std::string("\n[fsdp]").size());
  std::ofstream("run/settings.toml") << text;
  const auto ended = run_tandem({"train", "resume=run", "train.steps=14"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(logged("run", "step"), numbers(1, 14));
  EXPECT_NE(slurp("run/settings.toml").find("[mesh]\nshard = 0\n"), std::string::npos);
}

TEST_F(ResumeRun, OfACompleteRunLeavesItsSettings) {
  const auto before = slurp("run/settings.toml");
  const auto ended = train({"resume=run", "train.steps=5", "train.lr=0.5"});
  EXPECT_TRUE(tells(ended, "nothing was left to train")) << ended.err;
  EXPECT_EQ(slurp("run/settings.toml"), before);
}

TEST_F(ResumeRun, GoesOnInItsFolder) {
  int steps = 12;
  for (const std::string path : {"run", "run/", "run/checkpoints", "run/checkpoints/step_00000018", "../@/run"}) {
    auto place = path;
    if (const auto at = place.find('@'); at != place.npos) place.replace(at, 1, folder_.path().filename());
    const auto words = "train.steps=" + std::to_string(steps += 2);
    const auto ended = train({"resume=" + place, words});
    ASSERT_EQ(ended.status, 0) << path << ended.err;
    EXPECT_EQ(names_in("."), std::set<std::string>{"run"});
    EXPECT_EQ(logged("run", "step"), numbers(1, steps)) << path;
    EXPECT_EQ(result("run")["steps"], steps);
  }
  EXPECT_EQ(logged("run", "resume"), (std::vector<int>{12, 14, 16, 18, 20}));
  EXPECT_EQ(names_in("run/checkpoints").size(), 8);  // of 4, 8, 12, 14, 16, 18, 20, 22
  const auto launched = [&] {
    auto words = job({"resume=run", "train.steps=24"});
    words.insert(words.begin(), {"launch", "-n", "2", "--"});
    return run_tandem(words);
  }();
  ASSERT_EQ(launched.status, 0) << launched.err;
  EXPECT_EQ(names_in("."), std::set<std::string>{"run"});
  EXPECT_EQ(logged("run", "step"), numbers(1, 24));
  // The settings repeat the run from its begin, and go on with it.
  ASSERT_EQ(run_tandem({"train", "--config", "run/settings.toml", "out=again"}).status, 0);
  EXPECT_EQ(logged("again", "step"), numbers(1, 24));
  ASSERT_EQ(run_tandem({"train", "--config", "run/settings.toml", "train.steps=26"}).status, 0);
  EXPECT_EQ(logged("run", "step"), numbers(1, 26));
}

TEST_F(ResumeRun, AnOlderCheckpointGoesOnElsewhere) {
  const std::string older = "run/checkpoints/step_00000008";
  const auto refused = train({"resume=" + older, "out=run"});
  EXPECT_EQ(refused.status, 78);
  EXPECT_TRUE(
      tells(refused, "error: out is 'run', which holds newer checkpoints than '" + older +
                         "', wanted a new folder: name another folder with out=, or leave it out for a new one\n"))
      << refused.err;
  const auto log = slurp("run/log.jsonl");
  const auto ended = train({"resume=" + older});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto folder = fs::path("runs") / *names_in("runs").begin();
  EXPECT_TRUE(tells(ended, "resume   writes to the new folder '" + folder.string() +
                               "', for there are newer checkpoints beside '" + older + "'\n"))
      << ended.err;
  EXPECT_EQ(logged(folder, "step"), numbers(1, 12));
  EXPECT_EQ(slurp("run/log.jsonl"), log);
  EXPECT_EQ(result(folder)["weights_hash"], result("run")["weights_hash"]);
  const auto other = train({"resume=run", "out=" + folder.string()});
  EXPECT_EQ(other.status, 78);
  EXPECT_TRUE(tells(other, "', which holds checkpoints of a run, wanted a new folder: ")) << other.err;
}

TEST_F(ResumeRun, OfACompleteRunLeavesACompleteFolder) {
  const auto hash = result("run")["weights_hash"];
  const auto before = slurp("run/result.json");
  const auto again = train({"resume=run"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(tells(again, "nothing was left to train\n")) << again.err;
  EXPECT_EQ(slurp("run/result.json"), before);
  for (const std::string ranks : {"1", "2"}) {
    const auto out = "new" + ranks;
    const auto elsewhere = train({"resume=run", "ranks=" + ranks, "out=" + out});
    EXPECT_EQ(elsewhere.status, 0) << elsewhere.err;
    EXPECT_TRUE(tells(elsewhere, "nothing was left to train\n")) << elsewhere.err;
    auto files = names_in(out);
    for (const auto* name : {"checkpoints", "log.jsonl", "result.json", "report.html", "settings.toml", "events"}) {
      EXPECT_TRUE(files.contains(name)) << name;
    }
    EXPECT_EQ(result(out)["weights_hash"], hash);
    EXPECT_EQ(run_tandem({"reshard", out, "merge=" + out + ".safetensors"}).status, 0);
    const auto more = train({"resume=" + out, "train.steps=16", "ranks=" + ranks});
    EXPECT_EQ(more.status, 0) << more.err;
    EXPECT_EQ(logged(out, "step"), numbers(1, 16));
  }
}

TEST_F(ResumeRun, AJumpOfTheLearningRateIsTold) {
  const std::string jump = "resume   the learning rate jumps from 4e-07 to 0.0";
  const auto more = train({"resume=run", "train.steps=24"});
  ASSERT_EQ(more.status, 0) << more.err;
  EXPECT_TRUE(tells(more, jump)) << more.err;
  EXPECT_TRUE(tells(more, "or go on with train.schedule=constant train.lr=4e-07\n")) << more.err;
  const auto as_told = train({"resume=run", "train.steps=30", "train.schedule=constant", "train.lr=4e-07"});
  EXPECT_EQ(as_told.status, 0) << as_told.err;
  EXPECT_FALSE(tells(as_told, "jumps")) << as_told.err;
  EXPECT_FALSE(tells(train({"resume=run", "train.steps=24"}), "jumps")) << "nothing is left to train";
  const auto on_time = train({"out=on-time", "resume=run/checkpoints/step_00000008", "train.schedule=onecycle"});
  EXPECT_EQ(on_time.status, 0) << on_time.err;
  EXPECT_FALSE(tells(on_time, "jumps")) << on_time.err;
}

TEST_F(ResumeRun, AnotherJobChangesNothing) {
  const auto settings = slurp("run/settings.toml"), log = slurp("run/log.jsonl");
  for (const Words& words : {Words{"resume=run"}, Words{"resume=auto", "out=run"}}) {
    auto other = words;
    other.insert(other.end(), {"seed=9", "train.steps=24"});
    const auto ended = train(other);
    EXPECT_NE(ended.status, 0);
    EXPECT_FALSE(tells(ended, "plan     ")) << "refused before the work: " << ended.err;
    EXPECT_EQ(slurp("run/settings.toml"), settings);
    EXPECT_EQ(slurp("run/log.jsonl"), log);
  }
}

TEST_F(ResumeRun, WithShardsTheThreadsOfARankAreFixed) {
  const Words shards = {"train.shards=4", "train.batch=8", "threads=0"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), shards.begin(), shards.end());
    return train(more);
  };
  const std::string told = "threads  1 a rank, with train.shards; another number gives other bits: threads=N\n";
  for (const std::string ranks : {"1", "2"}) {
    const auto ended = with({"ranks=" + ranks, "out=shards" + ranks});
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_TRUE(tells(ended, told)) << ended.err;
  }
  EXPECT_EQ(result("shards1")["weights_hash"], result("shards2")["weights_hash"]);
  EXPECT_EQ(with({"ranks=4", "resume=shards1", "train.steps=14"}).status, 0);
  const auto other = with({"threads=2", "resume=shards1", "train.steps=16"});
  EXPECT_EQ(other.status, 65);
  EXPECT_TRUE(tells(other, "is of another job: threads is 1, wanted 2\n")) << other.err;
  const auto given = with({"threads=2", "out=two"});
  EXPECT_EQ(given.status, 0) << given.err;
  EXPECT_FALSE(tells(given, told)) << given.err;
  EXPECT_EQ(with({"threads=2", "resume=two", "train.steps=14"}).status, 0);
  EXPECT_EQ(train({"threads=3", "resume=run", "train.steps=14"}).status, 0) << "without shards any number may resume";
}

TEST_F(ResumeRun, EvalNamesWhatIsNoRun) {
  fs::create_directories("pics/a");
  for (const std::string word : {"resume=pics", "pics", "pics/a"}) {
    const auto ended = run_tandem({"eval", word});
    EXPECT_EQ(ended.status, 65);
    EXPECT_EQ(ended.err, "error: '" + word.substr(word.find('=') + 1) +
                             "' holds no checkpoint, wanted a run's folder, its checkpoints or one of them\n");
  }
  EXPECT_EQ(run_tandem({"eval"}).status, 64);
}

}  // namespace
}  // namespace tandem::cli
