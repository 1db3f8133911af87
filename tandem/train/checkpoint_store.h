#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/storage/manifest.h"
#include "tandem/storage/safetensors.h"

namespace tandem::train {

/// Checkpoints of one run. A checkpoint is either complete or absent, whenever the machine stops:
///
///   folder/.tmp_step_00001000/rank_0000.safetensors      begin, then each rank writes its own file    (synced)
///                             rank_0001.safetensors
///                             model.safetensors.index.json, manifest.json      commit, by one rank    (synced)
///   folder/step_00001000/                                                      renamed, parent synced
///   folder/step_00000800/                                                      older ones beyond `keep` removed
///
/// The checkpoint that the manifest calls the best, as the number kBestStep of its trainer, is never removed as too
/// old.
///
/// This class does not communicate. The ranks must keep this order: all begin; each writes; all learn whether every
/// rank could write; one rank commits or abandons; all wait for it before the next begin. A folder belongs to one run.
///
/// Neither the folder nor its content may be symbolic links. A link at a name that is about to be written is replaced,
/// and its target stays unchanged. The folder's parents may be links.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path folder, int keep = 2);

  /// begin() and set_aside() call `guard` first. It must throw if the folder no longer belongs to the run.
  void set_guard(std::function<void()> guard) { guard_ = std::move(guard); }

  /// Makes the temporary folder, and removes temporary folders that earlier steps or runs left over. Any rank may call
  /// it, any number of times. Logs a warning if the store's folder has been removed since this object made it. Throws
  /// IoError, also if that folder is a link.
  void begin(int64_t step);

  /// Writes this rank's file and replaces an existing one. Throws as write_safetensors().
  void write_rank(int64_t step, int rank, const std::vector<storage::NamedTensor>& tensors,
                  const std::map<std::string, std::string>& metadata = {});

  /// The same for tensors that are not in memory.
  void write_rank(int64_t step, int rank, const std::vector<storage::TensorSource>& sources,
                  const std::map<std::string, std::string>& metadata = {});

  /// Makes the checkpoint of manifest.step from the files of manifest.world ranks, and fills in manifest.files. `card`:
  /// the text of its ModelCard; empty: it gets none.
  /// Replaces an existing checkpoint of that step. Then removes the run's older checkpoints except the newest keep - 1
  /// complete ones and the best; a failure to remove one is a warning. Throws IoError or DataError if a rank's file is
  /// not complete, DataError also if two files hold a tensor of the same name: call abandon() then.
  void commit(storage::Manifest manifest, const std::string& card = "");

  /// Removes the temporary folder, if possible.
  void abandon(int64_t step) noexcept;

  /// Hides a checkpoint from list() and find_newest(), because training cannot continue from it. Its files stay in a
  /// folder next to the other checkpoints until another checkpoint is set aside. Returns the folder's name. Throws
  /// IoError.
  std::string set_aside(int64_t step) const;

  std::vector<int64_t> list() const;  // newest first; judged by name alone
  std::filesystem::path path(int64_t step) const;

  struct Found {
    int64_t step;
    storage::Manifest manifest;
  };

  /// Reads a checkpoint whose manifest and file sizes are right, and returns what is wrong with it, as verify() does.
  using Reading = std::function<std::optional<std::string>(const Found& candidate)>;

  /// Returns what is wrong with a checkpoint for this job, such as "is cut short: rank_0001.safetensors has 1200 bytes,
  /// wanted 65536". Without `read`, every byte is read, and nullopt says that the checkpoint is complete and all its
  /// numbers are finite.
  std::optional<std::string> verify(int64_t step, const storage::Identity& job = {}, const Reading& read = {}) const;

  /// Returns the newest checkpoint, up to step `newest`, that is complete and belongs to this job: its identity
  /// contains every entry of `job` with the same value, and `read` finds no fault in it. Adds a line to `notes` for
  /// each checkpoint that is skipped. Without `read`, every byte is read and verified.
  std::optional<Found> find_newest(const storage::Identity& job, std::vector<std::string>& notes,
                                   std::optional<int64_t> newest = {}, const Reading& read = {}) const;

  /// The step of the newest checkpoint of this job. Judges checkpoints by manifest, index and file sizes only, which is
  /// fast.
  std::optional<int64_t> newest(const storage::Identity& job) const;

  /// The step that the newest checkpoint which tells of one calls the best; its checkpoint may be missing. Reads
  /// manifests only.
  std::optional<int64_t> best() const;

  /// Throw DataError or IoError if the checkpoint is damaged or missing.
  storage::Manifest manifest(int64_t step) const;
  storage::SafetensorsFile open_rank(int64_t step, int rank) const;

  /// The text of a checkpoint's model card; "" if it has none. Throws as above.
  std::string card(const storage::Manifest& manifest) const;

 private:
  std::filesystem::path temporary(int64_t step) const;
  storage::Manifest complete(storage::Manifest manifest, const std::string& card) const;
  std::optional<std::string> fault_of(int64_t step, const storage::Identity& job, storage::Manifest& manifest) const;
  std::optional<std::string> reading_fault(const Found& candidate) const;
  void remove_leftovers(int64_t current) const;
  void prune(const storage::Manifest& committed) const;

  std::filesystem::path folder_;
  int keep_;
  bool is_made_ = false;
  std::function<void()> guard_;
};

/// The number of a manifest's trainer that is the step of the run's best test, and the name of that step's checkpoint
/// as a path, `checkpoints/best`; nothing of that name is written.
inline constexpr const char *kBestStep = "best_step", *kBestName = "best";

/// Whether the path is the name of a best checkpoint: kBestName in a folder of checkpoints.
bool names_best(const std::filesystem::path& path);

/// Turns an exception into a fault of a checkpoint: "is damaged: ...", "cannot be read: ...", "is not finite: ..." or,
/// for a SettingsError, "is of another job: ...".
std::string fault_words(const std::exception& error);

/// What a user's path leads to: a folder of checkpoints, a run's folder that contains `checkpoints`, or one checkpoint,
/// which may be named as the best. `newest` is the step of that one checkpoint; older checkpoints are used if it is
/// damaged.
struct CheckpointPlace {
  std::filesystem::path folder;
  std::optional<int64_t> newest;
};

/// Throws DataError if the path does not lead to a folder, or if there is no best checkpoint.
CheckpointPlace locate_checkpoints(const std::filesystem::path& path);

}  // namespace tandem::train
