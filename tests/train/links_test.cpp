#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/flight/recorder.h"
#include "tandem/storage/event_file.h"
#include "tandem/storage/file_io.h"
#include "tandem/storage/json_log.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"
#include "tests/train/checkpoint_sample.h"

// Names that a run writes may be links that somebody put there.
namespace tandem::train {
namespace {

using test::slurp;
using test::spill;
using test::TemporaryFolder;
using test::text_of;

namespace fs = std::filesystem;

/// A run's folder, and a folder outside with a file that must stay as it is.
class Links : public testing::Test {
 protected:
  Links() {
    fs::create_directory(run_);
    spill(outside_ / "file", "precious");
    spill(outside_ / "rank_0001.safetensors", "precious too");
  }
  ~Links() override {
    EXPECT_EQ(slurp(outside_ / "file"), "precious");
    EXPECT_EQ(slurp(outside_ / "rank_0001.safetensors"), "precious too");
    int entries = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(outside_)) ++entries;
    EXPECT_EQ(entries, 2);
  }

  void plant_folder(const std::string& name) { fs::create_directory_symlink(outside_, run_ / name); }
  void plant_file(const std::string& name) { fs::create_symlink(outside_ / "file", run_ / name); }
  bool is_file(const std::string& name) const { return fs::is_regular_file(fs::symlink_status(run_ / name)); }
  std::string refusal(const std::string& name) const {
    return "'" + (run_ / name).string() +
           "' is a link, wanted a file or folder of the run's own: remove the link (the run's folder itself may be "
           "one)";
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_ / "run", outside_ = folder_ / "outside";
  CheckpointStore store_{run_ / "checkpoints"};
};

TEST_F(Links, ATextFileTakesTheLinksPlace) {
  for (const std::string name : {"result.json", "result.json.tmp"}) {
    plant_file(name);
    storage::write_text_file(run_ / "result.json", "{}");
    EXPECT_TRUE(is_file("result.json"));
    EXPECT_EQ(slurp(run_ / "result.json"), "{}");
    EXPECT_FALSE(fs::exists(fs::symlink_status(run_ / "result.json.tmp")));
  }
}

TEST_F(Links, ALogIsNotWrittenThroughOne) {
  plant_file("log.jsonl");
  for (const bool append : {true, false}) {
    EXPECT_EQ(text_of<IoError>([&] { storage::JsonLog log(run_ / "log.jsonl", append); }), refusal("log.jsonl"));
  }
  plant_folder("events");
  EXPECT_EQ(text_of<IoError>([&] { storage::EventFile events(run_ / "events"); }), refusal("events"));
}

TEST_F(Links, AFlightRecordIsNotWrittenThroughOne) {
  plant_folder("flight");
  flight::FlightRecorder recorder(0, 1);
  recorder.set_folder(run_ / "flight");
  recorder.write("a fault");
  fs::create_directory(run_ / "other");
  plant_file("other/flight_rank_0000.json.tmp");
  plant_file("other/flight_rank_0000.json");
  flight::FlightRecorder second(0, 1);
  second.set_folder(run_ / "other");
  second.write("a fault");
  EXPECT_TRUE(is_file("other/flight_rank_0000.json"));
  EXPECT_NE(slurp(run_ / "other" / "flight_rank_0000.json").find("a fault"), std::string::npos);
}

TEST_F(Links, AFolderOfCheckpointsThatIsOneIsRefused) {
  plant_folder("checkpoints");
  spill(outside_ / ".tmp_step_00000001" / "x", "");
  EXPECT_EQ(text_of<IoError>([&] { store_.begin(1); }), refusal("checkpoints"));
  EXPECT_THROW(store_.commit(sample_manifest(1)), IoError);
  store_.abandon(1);
  EXPECT_TRUE(fs::exists(outside_ / ".tmp_step_00000001" / "x"));
  fs::remove_all(outside_ / ".tmp_step_00000001");
}

TEST_F(Links, WhatStandsAtTheTemporaryNameGivesWay) {
  fs::create_directory(run_ / "checkpoints");
  plant_folder("checkpoints/.tmp_step_00000001");
  plant_folder("checkpoints/.tmp_step_00000007");  // of another step
  save(store_, 1, 3);
  EXPECT_EQ(store_.verify(1), std::nullopt);
  EXPECT_TRUE(fs::is_directory(fs::symlink_status(store_.path(1))));
  plant_file("checkpoints/.tmp_step_00000002");
  save(store_, 2);
  EXPECT_EQ(store_.list(), (std::vector<int64_t>{2, 1}));
}

TEST_F(Links, ATemporaryFolderThatBecomesOneIsRefused) {
  for (const bool committing : {false, true}) {
    if (committing) write_ranks(store_, 1);
    if (!committing) store_.begin(1);
    fs::remove_all(run_ / "checkpoints" / ".tmp_step_00000001");
    plant_folder("checkpoints/.tmp_step_00000001");
    EXPECT_EQ(text_of<IoError>([&] {
                if (committing) store_.commit(sample_manifest(1));
                store_.write_rank(1, 1, {{"a", at::ones({2})}});
              }),
              refusal("checkpoints/.tmp_step_00000001"));
    store_.abandon(1);
  }
}

TEST_F(Links, FilesInTheTemporaryFolderAreReplaced) {
  store_.begin(1);
  for (const std::string name :
       {"rank_0000.safetensors", "rank_0001.safetensors", storage::kManifestName, storage::kIndexName, "other"}) {
    plant_file("checkpoints/.tmp_step_00000001/" + name);
  }
  save(store_, 1);
  EXPECT_EQ(store_.verify(1), std::nullopt);
  for (const auto& entry : fs::directory_iterator(store_.path(1))) EXPECT_FALSE(entry.is_symlink()) << entry;
}

TEST_F(Links, AnOlderCheckpointThatIsOneIsPrunedAlone) {
  CheckpointStore only(run_ / "checkpoints", 1);
  save(only, 1);
  fs::rename(only.path(1), folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", only.path(1));
  save(only, 1);  // over the link
  EXPECT_TRUE(fs::is_directory(fs::symlink_status(only.path(1))));
  fs::remove_all(only.path(1));
  fs::create_directory_symlink(folder_ / "elsewhere", only.path(1));
  save(only, 2);
  EXPECT_EQ(only.list(), std::vector<int64_t>{2});
  EXPECT_TRUE(fs::exists(folder_ / "elsewhere" / storage::kManifestName));
}

TEST_F(Links, ARunsFolderMayBeOne) {
  fs::create_directory_symlink(run_, folder_ / "alias");
  CheckpointStore store(folder_ / "alias" / "checkpoints");
  save(store, 1);
  storage::write_text_file(folder_ / "alias" / "settings.toml", "x");
  storage::JsonLog(folder_ / "alias" / "log.jsonl", false).write({});
  EXPECT_EQ(store_.verify(1), std::nullopt);
  EXPECT_TRUE(is_file("settings.toml"));
}

}  // namespace
}  // namespace tandem::train
