#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>

#include "tandem/base/rng.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tandem/train/checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// What the ranks do together with a checkpoint: saving it, finding it, reading it.
namespace tandem::train {
namespace {

using test::slurp;
using test::spill;
using test::TemporaryFolder;
using test::text_of;

namespace fs = std::filesystem;

constexpr int64_t kRows = 11;
constexpr std::chrono::milliseconds kTimeout{600}, kSlowDisk{150};

/// A backbone's weight and a head that is split over the ranks, of `columns` columns.
struct Model {
  Tensor backbone, head;
  TrainingState state;
};

Model model_of(int rank, int size, double value, int64_t columns = 3) {
  const auto [begin, end] = comm::split_range(kRows, size, rank);
  Model model;
  model.backbone = at::full({2, 5}, value);
  model.head = (at::arange(kRows * columns, at::kFloat).reshape({kRows, columns}) + value).slice(0, begin, end).clone();
  model.state.tensors = {Parameter::replicated("backbone", model.backbone),
                         Parameter::split("head", model.head, {0, begin, end - begin, kRows})};
  model.state.identity = {{"model", "tiny"}};
  model.state.trainer = {{"step", static_cast<int64_t>(value)}};
  return model;
}

bool holds(const Model& model, const comm::ProcessGroup& group, double value) {
  const auto wanted = model_of(group.rank(), group.size(), value, model.head.size(1));
  return model.backbone.equal(wanted.backbone) && model.head.equal(wanted.head);
}

class CheckpointLoad : public testing::Test {
 protected:
  ~CheckpointLoad() override { storage::set_file_hook(nullptr); }

  void save(int64_t step, int ranks = 3, int64_t columns = 3) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      auto model = model_of(group.rank(), group.size(), static_cast<double>(step), columns);
      model.state.card = {"{\"classes\": 11}\n", at::arange(200, at::kByte)};
      EXPECT_TRUE(save_checkpoint(store_, step, model.state, group));
    });
  }

  /// The step that all ranks load, having checked what they hold then; -1: none. `warnings_` is what was told.
  int64_t load(int ranks = 3, int64_t columns = 3, std::optional<int64_t> newest = {},
               const comm::WorldOptions& options = {}) {
    std::mutex mutex;
    std::vector<int64_t> steps;
    testing::internal::CaptureStderr();
    comm::run_ranks(
        ranks,
        [&](comm::ProcessGroup& group) {
          const auto model = model_of(group.rank(), group.size(), 0, columns);
          const auto restored = load_checkpoint(store_, model.state, newest, group);
          if (restored) {
            EXPECT_TRUE(holds(model, group, static_cast<double>(restored->step)));
            EXPECT_EQ(storage::whole_number(restored->trainer, "step"), restored->step);
          }
          const std::lock_guard lock(mutex);
          steps.push_back(restored ? restored->step : -1);
        },
        options);
    warnings_ = testing::internal::GetCapturedStderr();
    for (const auto step : steps) EXPECT_EQ(step, steps[0]);
    return steps[0];
  }

  fs::path file(int64_t step, const std::string& name) const { return store_.path(step) / name; }

  void flip(const fs::path& path, size_t byte) const {
    auto bytes = slurp(path);
    bytes[byte] ^= 4;
    spill(path, bytes);
  }

  TemporaryFolder folder_;
  CheckpointStore store_{folder_ / "checkpoints", 9};
  std::string warnings_;
};

/// Each operation on a file whose path holds `place` takes long.
void slow_down(const std::string& operation, const std::string& place) {
  storage::set_file_hook([=](std::string_view what, const fs::path& path) {
    if (what == operation && path.string().find(place) != std::string::npos) std::this_thread::sleep_for(kSlowDisk);
  });
}

TEST_F(CheckpointLoad, AnyNumberOfRanksReadsWhatAnyOtherWrote) {
  for (const int writers : {1, 2, 3, 4}) {
    save(writers, writers);
    for (const int readers : {1, 2, 3, 4}) EXPECT_EQ(load(readers), writers);
    EXPECT_EQ(warnings_, "");
  }
}

TEST_F(CheckpointLoad, WhoReadsFromASlowDiskIsNotLate) {
  constexpr int64_t kColumns = 300'000;  // 5 MB of rows a rank
  save(10, 3, kColumns);
  slow_down("read", "step_00000010/");
  EXPECT_EQ(load(3, kColumns, {}, {.timeout = kTimeout}), 10);
  slow_down("read", "step_00000010/rank_0000");
  EXPECT_EQ(load(4, kColumns, {}, {.timeout = kTimeout}), 10);
}

TEST_F(CheckpointLoad, WhoLooksForCheckpointsOnASlowDiskIsNotLate) {
  for (int64_t step = 1; step <= 6; ++step) {
    save(step, 1);
    if (step > 1) fs::remove(file(step, storage::rank_file_name(0)));
  }
  slow_down("read", "manifest.json");
  EXPECT_EQ(load(3, 3, {}, {.timeout = kTimeout}), 1);
}

TEST_F(CheckpointLoad, WhoWritesToASlowDiskIsNotLate) {
  for (const std::string place : {"rank_0001", "manifest.json", ".tmp_step_00000020"}) {
    std::atomic<int> waits = 0;
    storage::set_file_hook([&](std::string_view, const fs::path& path) {
      if (path.string().find(place) == std::string::npos || ++waits > 5) return;
      std::this_thread::sleep_for(2 * kSlowDisk);
    });
    comm::run_ranks(3,
                    [&](comm::ProcessGroup& group) {
                      const auto model = model_of(group.rank(), group.size(), 20);
                      EXPECT_TRUE(save_checkpoint(store_, 20, model.state, group)) << place;
                    },
                    {.timeout = kTimeout});
    storage::set_file_hook(nullptr);
    EXPECT_EQ(load(), 20);
  }
}

TEST_F(CheckpointLoad, SavingAndLoadingSendFewBytes) {
  std::map<std::string, comm::OperationCount> saving, loading;
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto model = model_of(group.rank(), group.size(), 1);
    save_checkpoint(store_, 1, model.state, group);
    if (group.rank() == 2) saving = group.meter().counts();
    group.meter().reset();
    load_checkpoint(store_, model.state, {}, group);
    if (group.rank() == 2) loading = group.meter().counts();
  });
  EXPECT_EQ(saving.size(), 1u);
  EXPECT_EQ(saving["all_reduce"].calls, 3);
  EXPECT_EQ(loading.size(), 1u);
  EXPECT_EQ(loading["all_reduce"].calls, 2);
}

TEST_F(CheckpointLoad, EachRankReadsItsOwnPartsOnce) {
  constexpr int64_t kColumns = 200'000;  // 4, 4 and 3 rows of 800,000 bytes: 4, 4 and 3 pieces of a MiB
  save(10, 3, kColumns);
  std::mutex mutex;
  std::map<std::string, int> reads;
  storage::set_file_hook([&](std::string_view operation, const fs::path& path) {
    const std::lock_guard lock(mutex);
    if (operation == "read") ++reads[path.filename().string()];
  });
  EXPECT_EQ(load(3, kColumns), 10);
  constexpr int kHeader = 2 * 3;  // its length, then all of it, by each of three ranks
  // All ranks need the backbone; one checks the names of the classes.
  EXPECT_EQ(reads["rank_0000.safetensors"], kHeader + 3 + 1 + 4);
  EXPECT_EQ(reads["rank_0001.safetensors"], kHeader + 4);
  EXPECT_EQ(reads["rank_0002.safetensors"], kHeader + 3);
}

TEST_F(CheckpointLoad, LoadingTakesNoMemoryBesideTheTensors) {
  memory::install_meter();
  constexpr int64_t kColumns = 200'000;
  save(10, 3, kColumns);
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    const RankScope scope(group.rank());
    const auto model = model_of(group.rank(), group.size(), 0, kColumns);
    memory::reset_peak(group.rank());
    const auto before = memory::account(group.rank()).live_bytes();
    EXPECT_TRUE(load_checkpoint(store_, model.state, {}, group));
    EXPECT_LE(memory::account(group.rank()).peak_bytes() - before, 1024);
  });
}

TEST_F(CheckpointLoad, WhatIsNotFiniteIsPassedOver) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    save(10);
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      auto model = model_of(group.rank(), group.size(), 20);
      if (group.rank() == 1) model.head[1][2] = bad;
      save_checkpoint(store_, 20, model.state, group);
    });
    EXPECT_EQ(load(), 10);
    EXPECT_EQ(warnings_, "warning: checkpoint step_00000020 is not finite: '" +
                             file(20, storage::rank_file_name(1)).string() +
                             "': tensor 'head.rank_0001' holds inf or NaN, wanted finite numbers (rank 1 of 3)\n");
    EXPECT_EQ(load(2, 3, 20), 10);  // asked for by name
    EXPECT_EQ(store_.verify(20), "is not finite: '" + file(20, storage::rank_file_name(1)).string() +
                                     "': tensor 'head.rank_0001' holds inf or NaN, wanted finite numbers");
  }
}

TEST_F(CheckpointLoad, WhatNobodyLoadsCountsToo) {
  save(10);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    auto model = model_of(group.rank(), group.size(), 20);
    auto momentum = at::zeros_like(model.head);
    if (group.rank() == 2) momentum[0][0] = std::nan("");
    model.state.tensors.push_back(model.state.tensors[1].beside("optimizer.momentum", momentum));
    save_checkpoint(store_, 20, model.state, group);
  });
  for (const int ranks : {1, 2, 3}) EXPECT_EQ(load(ranks), 10);
  EXPECT_NE(warnings_.find("tensor 'optimizer.momentum.rank_0002' holds inf or NaN"), std::string::npos) << warnings_;
}

TEST_F(CheckpointLoad, WhatOneRankFindsDamagedAllPassOver) {
  save(10);
  save(20);
  flip(file(20, storage::rank_file_name(2)), fs::file_size(file(20, storage::rank_file_name(2))) - 1);
  EXPECT_EQ(load(), 10);
  EXPECT_TRUE(warnings_.starts_with("warning: checkpoint step_00000020 is damaged: '" +
                                    file(20, storage::rank_file_name(2)).string() +
                                    "': tensor 'head.rank_0002' has checksum "))
      << warnings_;
  EXPECT_TRUE(warnings_.ends_with(" (rank 2 of 3)\n")) << warnings_;
  EXPECT_EQ(std::ranges::count(warnings_, '\n'), 1);
  EXPECT_EQ(load(1), 10);
  fs::remove_all(store_.path(10));
  EXPECT_EQ(load(), -1);
}

/// Earlier versions saved the counters of a float64 job in float64.
TEST_F(CheckpointLoad, CountersMayBeStoredAsFloatingPointNumbers) {
  const auto state_of = [](const Tensor& counter) {
    return TrainingState{.tensors = {Parameter::replicated("batches", counter)}, .identity = {}, .trainer = {}};
  };
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    for (const double value : {7.0, 2.5}) {
      const auto stored = at::full({}, value, at::kDouble), counter = at::zeros({}, at::kLong);
      ASSERT_TRUE(save_checkpoint(store_, 20, state_of(stored), group));
      testing::internal::CaptureStderr();
      const bool is_loaded = load_checkpoint(store_, state_of(counter), {}, group).has_value();
      const auto told = testing::internal::GetCapturedStderr();
      EXPECT_EQ(is_loaded, value == 7);
      EXPECT_EQ(counter.item<int64_t>(), is_loaded ? 7 : 0);
      EXPECT_EQ(told, is_loaded ? ""
                                : "warning: checkpoint step_00000020 is damaged: tensor 'batches' is 2.5, wanted a "
                                  "whole number\n");
    }
  });
}

TEST_F(CheckpointLoad, OtherShapesAreOfAnotherJob) {
  save(10);
  EXPECT_EQ(load(2, 4), -1);
  EXPECT_EQ(warnings_,
            "warning: checkpoint step_00000010 is of another job: tensor 'head' is Float [11, 3], wanted Float [11, 4] "
            "(rank 0 of 2)\n");
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto told_for = [&](const Parameter& other) {
      TrainingState state;
      state.tensors = {other};
      testing::internal::CaptureStderr();
      EXPECT_FALSE(load_checkpoint(store_, state, {}, group));
      return testing::internal::GetCapturedStderr();
    };
    const std::string begin = "warning: checkpoint step_00000010 is of another job: tensor ";
    EXPECT_EQ(told_for(Parameter::replicated("neck", at::zeros({2}))),
              begin + "'neck' is missing, wanted it in the checkpoint\n");
    EXPECT_EQ(told_for(Parameter::split("head", at::zeros({3, 3}), {0, 0, 3, 12})),
              begin + "'head' is Float [11, 3], wanted Float [12, 3]\n");
    EXPECT_EQ(told_for(Parameter::split("backbone", at::zeros({2, 1}), {1, 0, 1, 6})),
              begin + "'backbone' is Float [2, 5], wanted Float [2, 6]\n");
    EXPECT_EQ(told_for(Parameter::replicated("backbone", at::zeros({2, 5}, at::kDouble))),
              begin + "'backbone' is Float [2, 5], wanted Double [2, 5]\n");
  });
}

TEST_F(CheckpointLoad, AnyLayoutIsFilled) {
  save(10);
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto backbone = at::zeros({5, 2}).t(), head = at::zeros({kRows, 6}).slice(1, 1, 4);
    TrainingState state;
    state.tensors = {Parameter::replicated("backbone", backbone), Parameter::split("head", head, {0, 0, kRows, kRows})};
    EXPECT_TRUE(load_checkpoint(store_, state, {}, group));
    const auto wanted = model_of(0, 1, 10);
    EXPECT_TRUE(backbone.equal(wanted.backbone));
    EXPECT_TRUE(head.equal(wanted.head));
  });
}

/// Two hundred damages of a checkpoint of three ranks: cuts, flipped bits, missing and swapped files.
TEST_F(CheckpointLoad, NoDamageIsLoaded) {
  save(10);
  save(20);
  const std::vector<std::string> names = {storage::rank_file_name(0), storage::rank_file_name(1),
                                          storage::rank_file_name(2), storage::kIndexName,
                                          storage::kCardName,         storage::kManifestName};
  const auto sound = folder_ / "sound";
  fs::copy(store_.path(20), sound);
  CounterRng rng(7, 1);
  const auto any_of = [&](size_t count) { return static_cast<size_t>(rng.next() % count); };
  for (int i = 0; i < 200; ++i) {
    const auto& name = names[any_of(names.size())];
    const auto bytes = slurp(sound / name);
    std::string what;
    switch (i % 4) {
      case 0:
        what = "cut";
        spill(file(20, name), bytes.substr(0, any_of(bytes.size())));
        break;
      case 1:
        what = "flipped bit";
        spill(file(20, name), bytes);
        flip(file(20, name), any_of(bytes.size()));
        break;
      case 2:
        what = "missing";
        fs::remove(file(20, name));
        break;
      default: {
        what = "swapped";
        const auto first = any_of(3), second = (first + 1 + any_of(2)) % 3;
        spill(file(20, names[first]), slurp(sound / names[second]));
        spill(file(20, names[second]), slurp(sound / names[first]));
      }
    }
    EXPECT_EQ(load(1 + i % 3), 10) << what << " " << name << " " << i;
    EXPECT_TRUE(warnings_.starts_with("warning: checkpoint step_00000020 ")) << warnings_;
    fs::remove_all(store_.path(20));
    fs::copy(sound, store_.path(20));
  }
  EXPECT_EQ(load(), 20);
}

}  // namespace
}  // namespace tandem::train
