#include "tandem/train/checkpoint_store.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/train/detail/stored_part.h"
#include "tandem/train/parameter.h"
#include "tandem/train/weights_file.h"
#include "tests/storage/disk_limit.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"
#include "tests/train/checkpoint_sample.h"

namespace tandem::train {
namespace {

using test::slurp;
using test::spill;
using test::TemporaryFolder;
using test::text_of;

namespace fs = std::filesystem;

class Checkpoints : public testing::Test {
 protected:
  /// The notes of a search that finds `expected`; -1: nothing.
  std::vector<std::string> notes_of_finding(int64_t expected, const storage::Identity& job = kSampleJob,
                                            std::optional<int64_t> newest = {}) {
    std::vector<std::string> notes;
    const auto found = store_.find_newest(job, notes, newest);
    EXPECT_EQ(found ? found->step : -1, expected);
    if (found) {
      EXPECT_EQ(found->manifest.step, expected);
      EXPECT_TRUE(holds_sample(store_, expected));
    }
    return notes;
  }

  TemporaryFolder folder_;
  CheckpointStore store_{folder_ / "checkpoints"};
};

void save_with_best(CheckpointStore& store, int64_t step, int64_t best) {
  write_ranks(store, step);
  auto manifest = sample_manifest(step);
  manifest.trainer.emplace_back(kBestStep, best);
  store.commit(manifest);
}

using Notes = std::vector<std::string>;
using Steps = std::vector<int64_t>;

TEST_F(Checkpoints, WhatIsSavedIsFound) {
  save(store_, 100);
  EXPECT_EQ(notes_of_finding(100), Notes{});
  EXPECT_EQ(store_.verify(100), std::nullopt);
  const auto manifest = store_.manifest(100);
  EXPECT_EQ(manifest.identity, kSampleJob);
  EXPECT_EQ(storage::whole_number(manifest.trainer, "epoch"), 1);
  const auto index = storage::parse_shard_index(slurp(store_.path(100) / storage::kIndexName), "i");
  EXPECT_EQ(index, (std::map<std::string, std::string>{{"head.weight.rank_0", "rank_0000.safetensors"},
                                                       {"head.weight.rank_1", "rank_0001.safetensors"}}));
  EXPECT_NE(slurp(store_.path(100) / storage::kIndexName).find("\"total_size\": 320"), std::string::npos);
}

TEST_F(Checkpoints, NothingSavedIsNothingFound) {
  EXPECT_EQ(store_.list(), Steps{});
  EXPECT_EQ(notes_of_finding(-1), Notes{});
  EXPECT_EQ(store_.verify(7), "is missing");
}

TEST_F(Checkpoints, KeepsTheNewest) {
  for (const int64_t step : {100, 200, 300, 400}) save(store_, step);
  EXPECT_EQ(store_.list(), (Steps{400, 300}));
  CheckpointStore only(folder_ / "checkpoints", 1);
  save(only, 500);
  EXPECT_EQ(store_.list(), Steps{500});
  EXPECT_TRUE(text_of<c10::ValueError>([&] {
                CheckpointStore(folder_.path(), 0);
              }).starts_with("checkpoints to keep is 0, wanted 1 or more"));
}

TEST_F(Checkpoints, ADamagedOneIsNotCountedAsKept) {
  for (const int64_t step : {100, 200}) save(store_, step);
  fs::remove(store_.path(200) / storage::rank_file_name(0));
  save(store_, 300);
  EXPECT_EQ(store_.list(), (Steps{300, 200, 100}));
  save(store_, 400);  // two whole ones again: the elder ones may go
  EXPECT_EQ(store_.list(), (Steps{400, 300}));
}

TEST_F(Checkpoints, PruningLeavesOtherJobsAndLaterStepsAlone) {
  save(store_, 900);
  auto other = sample_manifest(50);
  other.identity[0].second = "huge";
  write_ranks(store_, 50);
  store_.commit(other);
  CheckpointStore only(folder_ / "checkpoints", 1);
  save(only, 100);
  save(only, 200);
  EXPECT_EQ(store_.list(), (Steps{900, 200, 50}));
}

TEST_F(Checkpoints, TheBestIsKeptBesideTheNewest) {
  CheckpointStore two(folder_ / "checkpoints", 2);
  save_with_best(two, 100, 100);
  save_with_best(two, 200, 100);
  save_with_best(two, 300, 100);
  save_with_best(two, 400, 100);
  EXPECT_EQ(store_.list(), (Steps{400, 300, 100}));
  save_with_best(two, 500, 500);
  EXPECT_EQ(store_.list(), (Steps{500, 400}));
  save_with_best(two, 600, 500);  // one of the newest
  EXPECT_EQ(store_.list(), (Steps{600, 500}));
}

TEST_F(Checkpoints, TheBestHasAName) {
  const auto best = folder_ / "checkpoints" / "best";
  EXPECT_FALSE(names_best(best));
  save(store_, 100);
  EXPECT_EQ(text_of<DataError>([&] { locate_checkpoints(best); }),
            "checkpoint '" + best.string() +
                "' is missing: no test was kept as the best: train with checkpoint.best, or name a step");
  save_with_best(store_, 200, 200);
  save_with_best(store_, 300, 200);
  save(store_, 400);  // by a run that kept no best
  EXPECT_TRUE(fs::exists(store_.path(300)));
  CheckpointStore all(folder_ / "checkpoints", 9);
  save_with_best(all, 500, 300);
  save(all, 600);
  const auto place = locate_checkpoints(best / "");
  EXPECT_EQ(place.folder, folder_ / "checkpoints");
  EXPECT_EQ(place.newest, 300);
  EXPECT_EQ(locate_weights(best), store_.path(300) / storage::kIndexName);
  spill(store_.path(500) / storage::kManifestName, "{}");
  EXPECT_EQ(store_.best(), 200);  // as step 300 has it
  fs::create_directory(best);
  EXPECT_FALSE(names_best(best));
}

TEST_F(Checkpoints, TheBestMayLieElsewhere) {
  const auto best = folder_ / "checkpoints" / "best";
  save_with_best(store_, 500, 300);
  EXPECT_EQ(text_of<DataError>([&] { locate_checkpoints(best); }),
            "checkpoint '" + best.string() +
                "' is missing: the best test was after step 300, whose checkpoint is not here: look for it in the run "
                "from which this one goes on, or name another step");
}

TEST_F(Checkpoints, SavingAStepAgainReplacesIt) {
  save(store_, 100);
  fs::resize_file(store_.path(100) / storage::rank_file_name(1), 10);
  save(store_, 100, 3);
  EXPECT_EQ(notes_of_finding(100), Notes{});
  EXPECT_EQ(store_.manifest(100).world, 3);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_ / "checkpoints")) ++entries;
  EXPECT_EQ(entries, 1);  // the replaced one is gone
}

TEST_F(Checkpoints, BeginRemovesLeftoversButNotItsOwn) {
  store_.begin(100);
  store_.write_rank(100, 0, {{"a", at::ones({2})}});
  store_.begin(100);
  EXPECT_TRUE(fs::exists(folder_ / "checkpoints" / ".tmp_step_00000100" / "rank_0000.safetensors"));
  store_.begin(200);
  EXPECT_FALSE(fs::exists(folder_ / "checkpoints" / ".tmp_step_00000100"));
  EXPECT_EQ(store_.list(), Steps{});
}

TEST_F(Checkpoints, CommitLeavesOutWhatALargerWorldLeft) {
  write_ranks(store_, 100, 4);
  save(store_, 100, 2);
  EXPECT_FALSE(fs::exists(store_.path(100) / storage::rank_file_name(3)));
  EXPECT_EQ(notes_of_finding(100), Notes{});
}

TEST_F(Checkpoints, AbandonLeavesTheOldOnes) {
  save(store_, 100);
  write_ranks(store_, 200);
  store_.abandon(200);
  store_.abandon(200);
  EXPECT_EQ(store_.list(), Steps{100});
  EXPECT_EQ(text_of<IoError>([&] { store_.commit(sample_manifest(200)); }),
            "cannot read '" + (folder_ / "checkpoints/.tmp_step_00000200/rank_0000.safetensors").string() +
                "': No such file or directory");
}

TEST_F(Checkpoints, AMissingRankStopsTheCommit) {
  save(store_, 100);
  write_ranks(store_, 200, 1);
  EXPECT_THROW(store_.commit(sample_manifest(200, 2)), IoError);
  store_.abandon(200);
  EXPECT_EQ(notes_of_finding(100), Notes{});
}

TEST_F(Checkpoints, AFullDiskKeepsTheOldOne) {
  save(store_, 100);
  store_.begin(200);
  const storage::DiskLimit full(300);
  const auto text = text_of<IoError>([&] { store_.write_rank(200, 0, {{"w", sample_weight(200, 0)}}); });
  EXPECT_TRUE(text.ends_with("rank_0000.safetensors': File too large: free some space there or choose another folder"));
  store_.abandon(200);
  EXPECT_EQ(notes_of_finding(100), Notes{});
}

TEST_F(Checkpoints, EachOnePassedOverGetsALine) {
  CheckpointStore store(folder_ / "checkpoints", 9);
  for (const int64_t step : {100, 200, 300, 400, 500, 600, 700}) save(store, step);
  const auto whole = fs::file_size(store.path(700) / storage::rank_file_name(1));
  fs::resize_file(store.path(700) / storage::rank_file_name(1), 120);
  fs::remove(store.path(600) / storage::rank_file_name(0));
  fs::remove(store.path(500) / storage::kManifestName);
  fs::copy_file(store.path(100) / storage::rank_file_name(1), store.path(400) / storage::rank_file_name(1),
                fs::copy_options::overwrite_existing);
  fs::rename(store.path(300) / storage::rank_file_name(0), folder_ / "swap");
  fs::rename(store.path(300) / storage::rank_file_name(1), store.path(300) / storage::rank_file_name(0));
  fs::rename(folder_ / "swap", store.path(300) / storage::rank_file_name(1));
  fs::resize_file(store.path(200) / storage::kIndexName, 500);
  const auto notes = notes_of_finding(100);
  ASSERT_EQ(notes.size(), 6U);
  const auto bytes = std::to_string(whole);
  EXPECT_EQ(notes[0], "checkpoint step_00000700 is cut short: rank_0001.safetensors has 120 bytes, wanted " + bytes);
  EXPECT_EQ(notes[1],
            "checkpoint step_00000600 is cut short: rank_0000.safetensors is missing, wanted " + bytes + " bytes");
  EXPECT_EQ(notes[2], "checkpoint step_00000500 is unfinished: manifest.json is missing");
  EXPECT_TRUE(notes[3].starts_with("checkpoint step_00000400 is damaged: rank_0001.safetensors has checksum "))
      << notes[3];
  EXPECT_TRUE(notes[4].starts_with("checkpoint step_00000300 is damaged: rank_0000.safetensors has checksum "))
      << notes[4];
  EXPECT_TRUE(
      notes[5].starts_with("checkpoint step_00000200 is damaged: model.safetensors.index.json has 500 bytes, wanted "));
}

TEST_F(Checkpoints, OtherJobsArePassedOver) {
  save(store_, 100);
  EXPECT_EQ(notes_of_finding(-1, {{"model", "tiny"}, {"data.classes", "20902"}}),
            Notes{"checkpoint step_00000100 is of another job: data.classes is 11, wanted 20902"});
  EXPECT_EQ(notes_of_finding(-1, {{"embedding", "128"}}),
            Notes{"checkpoint step_00000100 is of another job: embedding is missing, wanted 128"});
  EXPECT_EQ(notes_of_finding(100, {}), Notes{});
}

TEST_F(Checkpoints, ARenamedFolderIsNoOtherStep) {
  save(store_, 100);
  fs::rename(store_.path(100), store_.path(200));
  const auto notes = notes_of_finding(-1);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].ends_with("step is 100, wanted 200: the folder was renamed, give it its own name")) << notes[0];
}

TEST_F(Checkpoints, OneNamedByTheUserFallsBackToElderOnes) {
  CheckpointStore store(folder_ / "checkpoints", 9);
  for (const int64_t step : {100, 200, 300}) save(store, step);
  EXPECT_EQ(notes_of_finding(200, kSampleJob, 200), Notes{});
  fs::remove(store.path(200) / storage::kManifestName);
  EXPECT_EQ(notes_of_finding(100, kSampleJob, 200),
            Notes{"checkpoint step_00000200 is unfinished: manifest.json is missing"});
  EXPECT_EQ(notes_of_finding(100, kSampleJob, 150), Notes{"checkpoint step_00000150 is missing"});
}

TEST_F(Checkpoints, APathMayNameTheRunTheFolderOrOneStep) {
  save(store_, 100);
  const auto folder = folder_ / "checkpoints";
  const auto expect_place = [&](const fs::path& path, std::optional<int64_t> newest) {
    const auto place = locate_checkpoints(path);
    EXPECT_EQ(place.folder, folder) << path;
    EXPECT_EQ(place.newest, newest) << path;
  };
  expect_place(folder_.path(), {});
  expect_place(folder_.path() / "", {});
  expect_place(folder, {});
  expect_place(store_.path(100), 100);
  expect_place(store_.path(100) / "", 100);
  EXPECT_THROW(locate_checkpoints(store_.path(700)), DataError);  // who names one does not mean its siblings
  EXPECT_EQ(text_of<DataError>([&] { locate_checkpoints(folder_ / "none"); }),
            "checkpoints '" + (folder_ / "none").string() +
                "' are missing, wanted a folder: name a run's folder, its checkpoints or one of them");
}

TEST_F(Checkpoints, OneThatWasSetAsideIsToldAsSuch) {
  save(store_, 100);
  const auto aside = folder_ / "checkpoints" / store_.set_aside(100);
  EXPECT_EQ(text_of<DataError>([&] { locate_checkpoints(aside); }),
            "checkpoint '" + aside.string() +
                "' was set aside: training went from it to infinities or NaNs: rename it to step_00000100 to use it "
                "all the same");
}

TEST_F(Checkpoints, TheGuardStopsASaveBeforeAnythingIsWritten) {
  store_.set_guard([] { throw IoError("not yours"); });
  EXPECT_EQ(text_of<IoError>([&] { store_.begin(100); }), "not yours");
  EXPECT_FALSE(fs::exists(folder_ / "checkpoints"));
}

TEST_F(Checkpoints, EveryCutOfEveryFileIsPassedOver) {
  save(store_, 100);
  save(store_, 200);
  CounterRng rng(5, 1);
  for (const auto& name : {storage::rank_file_name(0), storage::rank_file_name(1), std::string(storage::kIndexName),
                           std::string(storage::kManifestName)}) {
    const auto sound = slurp(store_.path(200) / name);
    for (int i = 0; i < 100; ++i) {
      spill(store_.path(200) / name, sound.substr(0, rng.next() % sound.size()));
      EXPECT_EQ(notes_of_finding(100).size(), 1U) << name;
    }
    spill(store_.path(200) / name, sound);
  }
  EXPECT_EQ(notes_of_finding(200), Notes{});
}

TEST_F(Checkpoints, EveryFlippedBitIsPassedOver) {
  save(store_, 100);
  save(store_, 200);
  CounterRng rng(6, 1);
  for (const auto& name : {storage::rank_file_name(0), storage::rank_file_name(1), std::string(storage::kIndexName),
                           std::string(storage::kManifestName)}) {
    const auto sound = slurp(store_.path(200) / name);
    for (int i = 0; i < 400; ++i) {
      auto bytes = sound;
      bytes[rng.next() % bytes.size()] ^= static_cast<char>(1 << rng.next() % 8);
      spill(store_.path(200) / name, bytes);
      EXPECT_EQ(notes_of_finding(100).size(), 1U) << name;
    }
    spill(store_.path(200) / name, sound);
  }
  EXPECT_EQ(notes_of_finding(200), Notes{});
}

TEST_F(Checkpoints, TheNewestIsToldByManifestAndSizes) {
  EXPECT_EQ(store_.newest(kSampleJob), std::nullopt);
  for (const int64_t step : {100, 200}) save(store_, step);
  EXPECT_EQ(store_.newest(kSampleJob), 200);
  EXPECT_EQ(store_.newest({{"model", "huge"}}), std::nullopt);
  bool reads_tensors = false;
  storage::set_file_hook([&](std::string_view operation, const fs::path& path) {
    if (operation == "read" && path.extension() == ".safetensors") reads_tensors = true;
  });
  fs::resize_file(store_.path(200) / storage::rank_file_name(1), 10);
  EXPECT_EQ(store_.newest(kSampleJob), 100);
  storage::set_file_hook(nullptr);
  EXPECT_FALSE(reads_tensors);
  fs::remove_all(store_.path(100));
  EXPECT_EQ(store_.newest(kSampleJob), std::nullopt);
}

TEST_F(Checkpoints, AFolderThatHadGoneIsMadeAnewAndTold) {
  const auto warnings_of = [](CheckpointStore& store, int64_t step) {
    testing::internal::CaptureStderr();
    save(store, step);
    return testing::internal::GetCapturedStderr();
  };
  const auto told = [](const fs::path& folder) {
    return "warning: folder '" + folder.string() + "' had gone and was made anew; what was in it is lost\n";
  };
  EXPECT_EQ(warnings_of(store_, 100), "");
  fs::remove_all(folder_ / "checkpoints");
  EXPECT_EQ(warnings_of(store_, 200), told(folder_ / "checkpoints"));
  EXPECT_EQ(warnings_of(store_, 300), "");
  CheckpointStore fresh(folder_ / "fresh" / "checkpoints");
  EXPECT_EQ(warnings_of(fresh, 100), "");
}

TEST_F(Checkpoints, RowsOfASplitTensorAreNoted) {
  std::map<std::string, std::string> metadata;
  detail::put_splits(metadata, "w", {{0, 5, 3, 11}});
  EXPECT_EQ(metadata.at("tandem.rows.w"), "5,3,11");
  const auto rows_in = [&](const std::string& note) {
    storage::write_safetensors(folder_ / "x", std::vector<storage::NamedTensor>{{"w", at::ones({3, 2})}},
                               {{"tandem.rows.w", note}});
    return detail::splits_of(storage::SafetensorsFile(folder_ / "x"), "w");
  };
  EXPECT_EQ(rows_in("5,3,11"), (std::vector<Split>{{0, 5, 3, 11}}));
  for (const std::string note :
       {"", "5,3", "5,3,11,", "5,4,11", "9,3,11", "-1,3,11", "a", "99999999999999999999,3,11"}) {
    EXPECT_EQ(
        text_of<DataError>([&] { rows_in(note); }),
        "tandem.rows.w is '" + note + "', wanted first,count,total with the tensor's own number of rows as count");
  }
  storage::write_safetensors(folder_ / "x", std::vector<storage::NamedTensor>{{"w", at::ones({3, 2})}});
  EXPECT_EQ(detail::splits_of(storage::SafetensorsFile(folder_ / "x"), "w"), std::vector<Split>());
}

TEST_F(Checkpoints, PartsOfATensorSplitAlongOtherDimsAreNoted) {
  const std::vector<Split> splits = {{0, 5, 3, 11}, {2, 0, 2, 7}};
  std::map<std::string, std::string> metadata;
  detail::put_splits(metadata, "w", splits);
  detail::put_splits(metadata, "whole", {});
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"tandem.part.w", "0:5:3:11;2:0:2:7"}}));
  const auto splits_in = [&](const std::string& note) {
    storage::write_safetensors(folder_ / "x", std::vector<storage::NamedTensor>{{"w", at::ones({3, 4, 2})}},
                               {{"tandem.part.w", note}});
    return detail::splits_of(storage::SafetensorsFile(folder_ / "x"), "w");
  };
  EXPECT_EQ(splits_in("0:5:3:11;2:0:2:7"), splits);
  for (const std::string note :
       {"", ";", "0:5:3", "0:5:3:11;", "2:0:2:7;0:5:3:11", "0:5:3:11;0:5:3:11", "3:0:1:1", "-1:0:3:3", "0:5:4:11",
        "0:9:3:11", "0:9223372036854775807:3:9223372036854775807", "0:5:3:99999999999999999999", "1,0,4,4"}) {
    EXPECT_EQ(
        text_of<DataError>([&] { splits_in(note); }),
        "tandem.part.w is '" + note + "', wanted dim:first:count:total;... with the tensor's own sizes as counts");
  }
}

TEST_F(Checkpoints, NamesOfPartsLeadBack) {
  EXPECT_EQ(detail::name_of_part("w", 3), "w.rank_0003");
  EXPECT_EQ(detail::name_of_part("w", 12345, 2), "w.rank_12345.2");
  EXPECT_EQ(detail::name_of_whole("w.rank_0003", 3), "w");
  EXPECT_EQ(detail::name_of_whole("w.rank_0003.12", 3), "w");
  for (const std::string other : {"w", "w.rank_0004", "w.rank_0003.", "w.rank_0003.a", "w.rank_0003x"}) {
    EXPECT_EQ(detail::name_of_whole(other, 3), std::nullopt) << other;
  }
}

TEST_F(Checkpoints, ATensorInTwoFilesStopsTheCommit) {
  store_.begin(100);
  for (const int rank : {0, 1}) store_.write_rank(100, rank, {{"w", at::ones({2})}});
  EXPECT_EQ(text_of<DataError>([&] { store_.commit(sample_manifest(100)); }),
            "tensor 'w' is in rank_0000.safetensors and in rank_0001.safetensors, wanted it in one file");
}

}  // namespace
}  // namespace tandem::train
