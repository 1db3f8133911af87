#pragma once
#include <filesystem>
#include <string>

namespace tandem::cli {

/// Makes the run's folder: `out`, or runs/<date>-<letter> with the first free letter. `out` may be a symbolic link; the
/// files and folders that a run opens or fills in it may not. Throws IoError.
std::filesystem::path make_run_folder(const std::string& out);

/// Removes a folder that make_run_folder() made for a run that has not begun: the files that its start has written, and
/// the folder, with an empty runs/ above it if the run was not named. What others have put there stays.
void remove_new_folder(const std::filesystem::path& folder, bool is_unnamed) noexcept;

/// Throws SettingsError if one of the two folders lies in the other, links followed: a later run would take the run's
/// files for data. `run`: as make_run_folder() takes it. No folder need exist.
void check_apart(const std::string& run, const std::filesystem::path& data);

/// Throws IoError if make_run_folder(out) would fail for a reason that is known before: a place that may not be
/// written, a file where a folder is wanted. SettingsError if another run holds the folder's lock. Makes nothing.
void check_run_folder(const std::string& out);

/// Locks the folder against a second run while this object lives. The lock ends with the process, also if it is killed.
/// On a file system without locks every run is let in. The lock is the file `.lock`, to which a run writes a mark of
/// its own. Throws SettingsError if another run holds the lock.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Returns false if the lock file or the folder has been removed or replaced.
  bool is_in_place() const;

  /// Locks the folder again if the lock file has been removed. Throws IoError if another run has used the folder since:
  /// the folder belongs to that run now, and nothing may be written there.
  void keep();

 private:
  std::filesystem::path folder_;
  std::string mark_;
  int file_;
};

/// The folder of a run's flight records, and the folder to which the next start of the run moves them.
inline constexpr const char *kFlightFolder = "flight", *kFlightBefore = "flight-before";

/// Called when a run starts or resumes: moves its flight records to kFlightBefore, and removes those that were there.
void set_flight_aside(const std::filesystem::path& folder) noexcept;

/// Writes a small text file of a run, completely or not at all. A failure, such as a full disk, is a warning and does
/// not end the run.
void write_run_file(const std::filesystem::path& path, const std::string& text);

}  // namespace tandem::cli
