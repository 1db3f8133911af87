#include <gtest/gtest.h>

#include <set>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"
#include "tests/train/checkpoint_sample.h"

// The promise of the commit protocol: whatever moment the machine stops at, the old or the new checkpoint is found
// whole.
namespace tandem::train {
namespace {

using test::TemporaryFolder;
using test::text_of;

namespace fs = std::filesystem;

struct Crash {};

/// What the disk is known to hold: everything but what was changed since its last sync.
class Ledger {
 public:
  void note(std::string_view operation, const fs::path& path) {
    if (operation == "create" || operation == "make") unsynced_names_.insert(path);
    if (operation == "create" || operation == "write") unsynced_bytes_.insert(path);
    if (operation == "rename") {
      follow(path);
      unsynced_renames_.insert(path);
    }
    if (operation == "sync") {
      unsynced_bytes_.erase(path);
      const auto inside = [&](const fs::path& child) { return child.parent_path() == path; };
      std::erase_if(unsynced_names_, inside);
      std::erase_if(unsynced_renames_, inside);
    }
  }

  /// Loses a random part of all that is not synced, in a copy of the disk.
  void lose_power(const fs::path& disk, const fs::path& copy, CounterRng& rng) const {
    const auto there = [&](const fs::path& path) { return copy / fs::relative(path, disk); };
    for (const auto& path : unsynced_bytes_) {
      if (!fs::is_regular_file(there(path))) continue;
      const auto size = fs::file_size(there(path));
      const auto left = size ? rng.next() % (size + 1) : 0;
      fs::resize_file(there(path), left);
      if (rng.next() % 2) fs::resize_file(there(path), size);  // the length was kept, the bytes are zero
    }
    for (const auto& path : unsynced_names_) {
      if (rng.next() % 2) fs::remove_all(there(path));
    }
    for (const auto& path : unsynced_renames_) {
      const auto temporary = there(path).parent_path() / (".tmp_" + path.filename().string());
      if (rng.next() % 2 && fs::exists(there(path)) && !fs::exists(temporary)) fs::rename(there(path), temporary);
    }
  }

 private:
  /// What is under the temporary name moves along to the new one.
  void follow(const fs::path& to) {
    const auto from = to.parent_path() / (".tmp_" + to.filename().string());
    for (auto* paths : {&unsynced_bytes_, &unsynced_names_}) {
      std::set<fs::path> moved;
      for (const auto& path : *paths) moved.insert(path.parent_path() == from ? to / path.filename() : path);
      *paths = moved;
    }
  }

  std::set<fs::path> unsynced_bytes_, unsynced_names_, unsynced_renames_;
};

/// Runs `save` until its `stop`-th file operation; true when it came that far.
template <class Save>
bool run_until(int stop, Ledger& ledger, Save save) {
  int count = 0;
  bool crashed = false;
  storage::set_file_hook([&](std::string_view operation, const fs::path& path) {
    if (count++ == stop) throw Crash();
    ledger.note(operation, path);
  });
  try {
    save();
  } catch (const Crash&) {
    crashed = true;
  }
  storage::set_file_hook(nullptr);
  return crashed;
}

/// Saves `step` over what `prepare` left, stopped at every operation in turn; after each, one of `old_or_new` is found,
/// also in copies that lost power.
template <class Prepare>
void expect_survival(Prepare prepare, int64_t step, const std::set<int64_t>& old_or_new, int world = 2) {
  const auto expect_whole = [&](const fs::path& folder, const std::set<int64_t>& allowed, const std::string& when) {
    const CheckpointStore store(folder);
    std::vector<std::string> notes;
    const auto found = store.find_newest(kSampleJob, notes);
    ASSERT_TRUE(found) << when << (notes.empty() ? "" : ": " + notes[0]);
    EXPECT_TRUE(allowed.contains(found->step)) << when << ": " << found->step;
    EXPECT_TRUE(holds_sample(store, found->step)) << when;
  };
  int stop = 0;
  for (bool crashed = true; crashed; ++stop) {
    const TemporaryFolder folder;
    CheckpointStore store(folder / "checkpoints");
    prepare(store);
    Ledger ledger;
    crashed = run_until(stop, ledger, [&] { save(store, step, world); });
    const std::set<int64_t> only_new = {step};
    const auto& allowed = crashed ? old_or_new : only_new;  // a save that came to its end is on the disk
    expect_whole(folder / "checkpoints", allowed, "stopped at operation " + std::to_string(stop));
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const TemporaryFolder copy;
      fs::copy(folder.path(), copy.path(), fs::copy_options::recursive);
      CounterRng rng(seed, stop);
      ledger.lose_power(folder.path(), copy.path(), rng);
      expect_whole(copy / "checkpoints", allowed, "power lost at operation " + std::to_string(stop));
    }
    if (!testing::Test::HasFailure()) {  // and the next save works
      save(store, step + 100, world);
      EXPECT_EQ(store.list().front(), step + 100);
      EXPECT_EQ(store.verify(step + 100), std::nullopt);
    }
  }
  EXPECT_GT(stop, 15);
}

TEST(CheckpointCrash, OldOrNewIsFoundNeverNeither) {
  expect_survival([](CheckpointStore& store) { save(store, 100); }, 200, {100, 200});
}

TEST(CheckpointCrash, AlsoWhilePruning) {
  const auto three = [](CheckpointStore& store) {
    save(store, 100);
    save(store, 200);
  };
  expect_survival(three, 300, {200, 300});
}

TEST(CheckpointCrash, AlsoWhenAStepIsSavedAgain) {
  expect_survival([](CheckpointStore& store) { save(store, 200); }, 200, {200});
}

TEST(CheckpointCrash, AlsoOverWhatAStoppedSaveLeft) {
  const auto stopped = [](CheckpointStore& store) {
    save(store, 100);
    write_ranks(store, 200, 3);
  };
  expect_survival(stopped, 200, {100, 200});
}

TEST(CheckpointCrash, AFaultOfTheDiskAtAnyOperationIsAnErrorThatLeavesTheOld) {
  int stop = 0;
  for (bool failed = true; failed; ++stop) {
    const TemporaryFolder folder;
    CheckpointStore store(folder / "checkpoints");
    save(store, 100);
    int count = 0;
    storage::set_file_hook([&](std::string_view, const fs::path&) {
      if (count++ == stop) throw IoError("no space");
    });
    failed = text_of<IoError>([&] { save(store, 200); }) == "no space";
    storage::set_file_hook(nullptr);
    if (failed) store.abandon(200);
    std::vector<std::string> notes;
    const auto found = store.find_newest(kSampleJob, notes);
    ASSERT_TRUE(found) << stop;
    EXPECT_TRUE(notes.empty());
    if (!failed) {
      EXPECT_EQ(found->step, 200);
    }
    if (failed && stop < 8) {
      EXPECT_EQ(found->step, 100);
    }
    if (stop > 200) break;
  }
  EXPECT_GT(stop, 15);
}

}  // namespace
}  // namespace tandem::train
