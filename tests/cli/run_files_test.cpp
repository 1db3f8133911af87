#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/base/error.h"
#include "tandem/cli/run/folder.h"
#include "tandem/cli/run/observer.h"
#include "tandem/train/checkpoint_store.h"
#include "tests/cli/run_command.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// The files of a run as a user may find them: links in the folder, numbers that are not finite, a folder that goes.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using test::run_here;
using test::run_tandem;
using test::slurp;
using Words = std::vector<std::string>;

class RunFiles : public testing::Test {
 protected:
  Words job(const Words& more = {}) const {
    Words words = {"train",          "data=synthetic",      "data.size=8",          "head.classes=31",    "model=mlp",
                   "train.batch=12", "train.steps=10",      "report.compare=false", "checkpoint.every=5", "threads=1",
                   "ranks=2",        "out=" + run_.string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path checkpoint(int64_t step) const { return train::CheckpointStore(run_ / "checkpoints").path(step); }

  /// Writes rank 1's file of a checkpoint again with an infinity in it, and what vouches for that file.
  void spoil(int64_t step) const {
    train::CheckpointStore store(run_ / "checkpoints");
    const auto manifest = store.manifest(step);
    store.begin(step);
    for (int rank = 0; rank < manifest.world; ++rank) {
      const auto file = store.open_rank(step, rank);
      std::vector<storage::NamedTensor> tensors;
      for (const auto& name : file.names()) tensors.push_back({name, file.read(name)});
      for (const auto& [name, tensor] : tensors) {
        if (name == "head.weight.rank_0001") tensor.view({-1})[0] = std::numeric_limits<double>::infinity();
      }
      store.write_rank(step, rank, tensors, file.metadata());
    }
    store.commit(manifest);
  }

  test::TemporaryFolder folder_;
  fs::path run_ = folder_ / "run";
};

/// What all ranks of a pipeline did in the last step.
TEST_F(RunFiles, APipelineLeavesATimeline) {
  const auto ended = run_here(job({"parallel=pipeline", "train.accumulate=3", "pipeline.schedule=zb-h1"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto events = nlohmann::json::parse(slurp(run_ / "timeline.json"))["traceEvents"];
  std::map<int, std::set<std::string>> names;
  for (const auto& event : events) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["ts"], 0);
    EXPECT_GE(event["dur"], 0);
    names[event["tid"]].insert(event["name"]);
  }
  EXPECT_EQ(names[0], (std::set<std::string>{"0F0", "0F1", "0F2", "0I0", "0I1", "0I2", "0W0", "0W1", "0W2", "0SEND_F0",
                                             "0SEND_F1", "0SEND_F2", "0RECV_B0", "0RECV_B1", "0RECV_B2"}));
  EXPECT_TRUE(names[1].contains("1RECV_F2"));
  EXPECT_NE(slurp(run_ / "report.html").find("A step of all ranks"), std::string::npos);
}

TEST_F(RunFiles, NothingIsWrittenThroughLinks) {
  const auto outside = folder_ / "outside";
  test::spill(outside / "file", "precious");
  fs::create_directories(run_ / "checkpoints");
  for (const std::string name : {"settings.toml", "settings.toml.tmp", "result.json", "report.html", "memory.svg"}) {
    fs::create_symlink(outside / "file", run_ / name);
  }
  fs::create_symlink(outside / "new", run_ / "report.html.tmp");
  fs::create_directory_symlink(outside, run_ / "checkpoints" / ".tmp_step_00000005");
  fs::create_directory_symlink(outside, run_ / "checkpoints" / ".tmp_step_00000010");
  const auto ended = run_tandem(job());
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(slurp(outside / "file"), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(outside), fs::directory_iterator()), 1);
  for (const auto& entry : fs::recursive_directory_iterator(run_)) EXPECT_FALSE(entry.is_symlink()) << entry;
}

TEST_F(RunFiles, LinksThatARunWouldFillAreNamed) {
  const auto outside = folder_ / "outside";
  fs::create_directories(outside);
  test::spill(outside / "file", "precious");
  for (const std::string name : {".lock", "checkpoints", "events", "flight", "log.jsonl"}) {
    fs::create_directories(run_);
    const bool is_file = name == ".lock" || name == "log.jsonl";
    fs::create_symlink(is_file ? outside / "file" : outside, run_ / name);
    const auto ended = run_tandem(job());
    EXPECT_EQ(ended.status, 74) << name;
    EXPECT_NE(
        ended.err.find("error: '" + (run_ / name).string() + "' is a link, wanted a file or folder of the run's own"),
        std::string::npos)
        << ended.err;
    fs::remove_all(run_);
  }
  EXPECT_EQ(slurp(outside / "file"), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(outside), fs::directory_iterator()), 1);
}

TEST_F(RunFiles, TheFolderItselfMayBeALink) {
  fs::create_directories(folder_ / "disk");
  fs::create_directory_symlink(folder_ / "disk", run_);
  EXPECT_EQ(run_tandem(job()).status, 0);
  EXPECT_TRUE(fs::exists(folder_ / "disk" / "checkpoints" / "step_00000010" / "manifest.json"));
}

TEST_F(RunFiles, ARunAndItsDataLieApart) {
  const auto pics = folder_ / "pics", link = folder_ / "link";
  fs::create_directories(pics / "cat");
  fs::create_directory_symlink(pics, link);
  const auto fault = [&](const fs::path& run, const fs::path& data) {
    return test::text_of<SettingsError>([&] { check_apart(run.string(), data); });
  };
  for (const auto& run : {pics, pics / "run", pics / "new" / "run", link / "run", pics / "cat" / ".." / "run",
                          folder_ / "no" / ".." / "pics" / "run"}) {
    for (const auto& data : {pics, link, pics / "cat" / ".."}) {
      EXPECT_EQ(fault(run, data), "run's folder '" + run.string() + "' lies in the data's '" + data.string() +
                                      "', wanted two folders apart: name another folder for the run with out=");
    }
  }
  EXPECT_EQ(fault(folder_.path(), link), "data's folder '" + link.string() + "' lies in the run's '" +
                                             folder_.path().string() +
                                             "', wanted two folders apart: name another folder for the run with out=");
  EXPECT_NE(fault("", fs::current_path()), "nothing thrown");
  for (const auto& run : {folder_ / "pics-run", folder_ / "picsrun" / "a", link.parent_path() / "x"}) {
    EXPECT_EQ(fault(run, pics), "nothing thrown");
  }
  EXPECT_EQ(fault("", folder_ / "runs"), "nothing thrown");
  EXPECT_EQ(fault("", fs::current_path() / "runs" / "pics"), "nothing thrown");  // a new folder beside it
  const auto ended = run_tandem(job({"data=images:" + pics.string(), "out=" + (pics / "run").string()}));
  EXPECT_EQ(ended.status, 78) << ended.err;
  EXPECT_FALSE(fs::exists(pics / "run"));
}

TEST_F(RunFiles, ACheckpointThatIsNotFiniteIsPassedOverByAll) {
  const auto glyphs = [&](const Words& more) {
    Words words = {"train",   "data.classes=20",      "train.batch=16",     "model=mlp",         "train.steps=15",
                   "ranks=2", "report.compare=false", "checkpoint.every=5", "checkpoint.keep=3", "threads=1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const auto out = "out=" + run_.string();
  ASSERT_EQ(run_tandem(glyphs({out})).status, 0);
  spoil(15);
  const auto expect_passed_over = [&](const test::Ended& ended) {
    EXPECT_EQ(ended.status, 0) << ended.err;
    const auto at = ended.err.find("warning: checkpoint step_00000015 is not finite: '");
    ASSERT_NE(at, std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find("warning: checkpoint ", at + 1), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("holds inf or NaN, wanted finite numbers", at), std::string::npos) << ended.err;
  };
  const auto evaluated = run_tandem({"eval", "resume=" + run_.string(), "--json", "-"});
  expect_passed_over(evaluated);
  EXPECT_EQ(nlohmann::json::parse(evaluated.out)["steps"], 10);
  const auto merged = run_tandem({"reshard", run_.string(), "merge=" + (folder_ / "m.safetensors").string()});
  expect_passed_over(merged);
  EXPECT_NE(merged.out.find("step_00000010 of 2 ranks"), std::string::npos) << merged.out;
  const auto named = run_tandem({"reshard", checkpoint(15).string(), "merge=" + (folder_ / "n.safetensors").string()});
  EXPECT_EQ(named.status, 65);
  EXPECT_NE(named.err.find("error: checkpoint '" + checkpoint(15).string() + "' is not finite: "), std::string::npos);
  const auto elsewhere = "out=" + (folder_ / "other").string();
  const auto by_name = run_tandem(glyphs({elsewhere, "resume=" + checkpoint(15).string()}));
  expect_passed_over(by_name);
  EXPECT_NE(by_name.err.find("resume   goes on after step 10"), std::string::npos) << by_name.err;
  const auto resumed = run_tandem(glyphs({out, "resume=auto"}));
  expect_passed_over(resumed);
  EXPECT_NE(resumed.err.find("resume   goes on after step 10"), std::string::npos) << resumed.err;
}

TEST_F(RunFiles, AFolderThatGoesComesAgainWithItsSettings) {
  test::Running running(test::tandem_command(job({"train.steps=1000000", "eval.every=0"})));
  const auto wait_for = [](const fs::path& path) {
    for (int i = 0; i < 3000 && !fs::exists(path); ++i) usleep(10'000);
    return fs::exists(path);
  };
  ASSERT_TRUE(wait_for(checkpoint(5)));
  const auto settings = slurp(run_ / "settings.toml");
  fs::rename(run_, folder_ / "away");
  EXPECT_TRUE(wait_for(run_ / "settings.toml"));
  running.signal(SIGTERM);
  const auto ended = running.wait();
  EXPECT_EQ(ended.status, 75) << ended.err;
  EXPECT_EQ(slurp(run_ / "settings.toml"), settings);
  const auto told =
      "warning: folder '" + (run_ / "checkpoints").string() + "' had gone and was made anew; what was in it is lost\n";
  EXPECT_NE(ended.err.find(told), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find(told), ended.err.rfind(told));
}

TEST_F(RunFiles, AReshardThatFailsLeavesNoFilesBehind) {
  ASSERT_EQ(run_tandem(job()).status, 0);
  const auto out = folder_ / "out";
  storage::set_file_hook([](std::string_view operation, const fs::path& path) {
    if (operation == "write" && path.filename() == "rank_0001.safetensors") throw IoError("no space");
  });
  EXPECT_EQ(run_here({"reshard", run_.string(), "ranks=3", "out=" + out.string()}).status, 74);
  storage::set_file_hook([](std::string_view operation, const fs::path& path) {
    if (operation == "rename" && path.filename() == "m.safetensors") throw IoError("no space");
  });
  EXPECT_EQ(run_here({"reshard", run_.string(), "merge=" + (out / "m.safetensors").string()}).status, 74);
  storage::set_file_hook(nullptr);
  for (const auto& entry : fs::recursive_directory_iterator(out)) EXPECT_TRUE(entry.is_directory()) << entry;
  EXPECT_FALSE(fs::exists(out / "checkpoints" / ".tmp_step_00000010"));
}

TEST_F(RunFiles, AFileInTheWayOfAFolderIsNamedBeforeTraining) {
  for (const std::string name : {"checkpoints", "events", "flight"}) {
    test::spill(run_ / name, "in the way");
    const auto ended = run_here(job());
    EXPECT_EQ(ended.status, 74) << name;
    EXPECT_EQ(ended.err.find("error: '" + (run_ / name).string() + "' is a file, wanted a folder"),
              ended.err.find("error: "))
        << ended.err;
    EXPECT_EQ(slurp(run_ / name), "in the way");
    fs::remove_all(run_);
  }
}

TEST_F(RunFiles, ALockThatWasRemovedIsTakenAgain) {
  fs::create_directories(run_);
  FolderLock lock(run_);
  EXPECT_TRUE(lock.is_in_place());
  fs::remove_all(run_);
  EXPECT_FALSE(lock.is_in_place());
  lock.keep();
  EXPECT_TRUE(lock.is_in_place());
  EXPECT_THROW(FolderLock{run_}, SettingsError);
}

TEST_F(RunFiles, AFolderThatAnotherRunHasTakenIsItsOwn) {
  fs::create_directories(run_);
  FolderLock lock(run_);
  RunObserver observer({.folder = run_, .steps_per_epoch = 9, .steps = 9, .lock = &lock});
  observer.on_step(1, 0, 0.5, 2.0);
  fs::remove_all(run_);
  fs::create_directories(run_);
  const auto taken = "'" + run_.string() + "' was removed and is another run's now";
  {
    const FolderLock other(run_);
    test::spill(run_ / "log.jsonl", "the other's\n");
    EXPECT_EQ(test::text_of<IoError>([&] { lock.keep(); }), taken);
  }
  EXPECT_EQ(test::text_of<IoError>([&] { lock.keep(); }), taken) << "the other run has ended, its files are there";
  testing::internal::CaptureStderr();
  for (int step = 2; step <= 4; ++step) observer.on_step(step, 0, 0.5, 2.0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: run's files in '" + run_.string() +
                "' were removed during training and cannot be put back: " + taken + "\n");
  EXPECT_EQ(slurp(run_ / "log.jsonl"), "the other's\n");
  EXPECT_FALSE(fs::exists(run_ / "settings.toml"));
}

TEST_F(RunFiles, ARunWhoseFolderIsTakenWritesNothingThere) {
  test::Running process(test::tandem_command(job({"train.steps=1000000"})));
  for (int i = 0; i < 3000 && !fs::exists(checkpoint(5)); ++i) usleep(10'000);
  ASSERT_TRUE(fs::exists(checkpoint(5)));
  // At once, so that the run does not find the place empty: another run's folder takes the place of its own.
  fs::create_directories(folder_ / "other");
  const FolderLock other(folder_ / "other");
  std::error_code in_the_way;
  do {  // the run puts its files back in between
    fs::rename(run_, folder_ / "away", in_the_way);
    fs::remove_all(folder_ / "away");
    fs::rename(folder_ / "other", run_, in_the_way);
  } while (in_the_way);
  const auto before = std::distance(fs::directory_iterator(run_), fs::directory_iterator());
  usleep(300'000);
  process.signal(SIGTERM);
  const auto ended = process.wait();
  EXPECT_EQ(ended.status, 74) << ended.err;
  EXPECT_NE(ended.err.find("result is not written: '" + run_.string() + "' was removed and is another run's now\n"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(std::distance(fs::directory_iterator(run_), fs::directory_iterator()), before);
}

}  // namespace
}  // namespace tandem::cli
