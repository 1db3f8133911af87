#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/parallel/parameter.h"
#include "tandem/storage/manifest.h"
#include "tandem/storage/safetensors.h"

namespace tandem::train {

/// Checkpoints of one run. Each is either whole or not there, whenever the machine stops:
///
///   folder/.tmp_step_00001000/rank_0000.safetensors      begin, then each rank writes its own file    (synced)
///                             rank_0001.safetensors
///                             model.safetensors.index.json, manifest.json      commit, by one rank    (synced)
///   folder/step_00001000/                                                      renamed, parent synced
///   folder/step_00000800/                                                      older ones beyond `keep` removed
///
/// No class here talks to other ranks. The order that the ranks keep: all begin; each writes; all learn whether every
/// rank could; one commits, or one abandons; all wait for it before the next begin. A folder belongs to one run.
///
/// The folder may not be a link, nor may what is in it: a link that stands at a name which is about to be written gives
/// way, and what it leads to stays as it is. The folder's parents may be links.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path folder, int keep = 2);

  /// begin() and set_aside() call it first. It throws when the folder is not the run's any more.
  void set_guard(std::function<void()> guard) { guard_ = std::move(guard); }

  /// Makes the temporary folder and removes those that earlier steps or runs left over. Any rank, any number of times.
  /// Warns when the store's folder has gone since this object made it. Throws IoError, also when that folder is a link.
  void begin(int64_t step);

  /// Writes this rank's file, replacing what stands there. Throws as write_safetensors does.
  void write_rank(int64_t step, int rank, const std::vector<storage::NamedTensor>& tensors,
                  const std::map<std::string, std::string>& metadata = {});

  /// The same of tensors that are not in memory.
  void write_rank(int64_t step, int rank, const std::vector<storage::TensorSource>& sources,
                  const std::map<std::string, std::string>& metadata = {});

  /// Makes the checkpoint of manifest.step out of manifest.world files; `files` is filled in here. A checkpoint of that
  /// step which is already there gives way. Then removes the run's older checkpoints but for keep - 1 whole ones; a
  /// failure there is a warning. Throws IoError or DataError when a rank's file is not whole: abandon the step.
  void commit(storage::Manifest manifest);

  /// Removes the temporary folder, if it can.
  void abandon(int64_t step) noexcept;

  /// Takes a checkpoint out of those that list() and find_newest() give, for training cannot go on from it. Its files
  /// stay in a folder beside the others until the next one is set aside. Returns the folder's name. Throws IoError.
  std::string set_aside(int64_t step) const;

  std::vector<int64_t> list() const;  // newest first; by name alone
  std::filesystem::path path(int64_t step) const;

  /// What is wrong with a checkpoint, every byte read: "is cut short: rank_0001.safetensors has 1200 bytes, wanted
  /// 65536". Nothing when it is whole and all its numbers are finite.
  std::optional<std::string> verify(int64_t step) const;

  struct Found {
    int64_t step;
    storage::Manifest manifest;
  };

  /// Reads a checkpoint whose manifest and sizes are right; gives what is wrong with it, as verify() does.
  using Reading = std::function<std::optional<std::string>(const Found& candidate)>;

  /// The newest checkpoint, up to step `newest`, that is whole and of this job: every entry of `job` stands in it with
  /// the same value, and `read` finds no fault in it. Each one passed over gives a line in `notes`. Without `read`
  /// every byte is read and checked.
  std::optional<Found> find_newest(const storage::Identity& job, std::vector<std::string>& notes,
                                   std::optional<int64_t> newest = {}, const Reading& read = {}) const;

  /// The step of the newest checkpoint of this job that is there, judged by its manifest and by its files' sizes:
  /// quick.
  std::optional<int64_t> newest(const storage::Identity& job) const;

  /// Throws DataError or IoError when it is damaged or not there.
  storage::Manifest manifest(int64_t step) const;
  storage::SafetensorsFile open_rank(int64_t step, int rank) const;

 private:
  std::filesystem::path temporary(int64_t step) const;
  storage::Manifest complete(storage::Manifest manifest) const;
  std::optional<std::string> fault_of(int64_t step, const storage::Identity& job, storage::Manifest& manifest) const;
  std::optional<std::string> reading_fault(const Found& candidate) const;
  void remove_leftovers(int64_t current) const;
  void prune(const storage::Manifest& committed) const;

  std::filesystem::path folder_;
  int keep_;
  bool is_made_ = false;
  std::function<void()> guard_;
};

/// What an exception says of a checkpoint: "is damaged: ...", "cannot be read: ...", "is not finite: ..." or "is of
/// another job: ..." (a SettingsError).
std::string fault_words(const std::exception& error);

/// Where a user's path leads: to a folder of checkpoints, to a run's folder that holds `checkpoints`, or to one
/// checkpoint (then `newest` is its step, so that its elder siblings stand in when it is bad).
struct CheckpointPlace {
  std::filesystem::path folder;
  std::optional<int64_t> newest;
};

/// Throws DataError when there is nothing at the path.
CheckpointPlace locate_checkpoints(const std::filesystem::path& path);

/// Which rows of a tensor that is split over the ranks a file holds; stands in its metadata as tandem.rows.<name>.
using parallel::RowRange;

void put_rows(std::map<std::string, std::string>& metadata, const std::string& name, const RowRange& rows);

/// Nothing when the file does not say. Throws DataError for a note that is none, or is not the tensor's.
std::optional<RowRange> rows_of(const storage::SafetensorsFile& file, const std::string& name);

}  // namespace tandem::train
