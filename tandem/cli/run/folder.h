#pragma once
#include <filesystem>
#include <string>

namespace tandem::cli {

/// Makes the run's folder: `out`, or runs/<date>-<letter> with the first letter that is free. `out` may be a link; what
/// a run opens or fills inside may not. Throws IoError.
std::filesystem::path make_run_folder(const std::string& out);

/// Keeps a second run out of the folder as long as this lives, also when the process is killed. A file system that
/// knows no locks lets everybody in. The lock is the file `.lock`, in which a run writes a mark of its own. Throws
/// SettingsError when another run is in the folder.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// False when somebody has removed the file, or the folder, or has put another file in its place.
  bool is_in_place() const;

  /// Locks the folder again where the file has gone. Throws IoError when another run has been there since: the folder
  /// is that run's now, and nothing may be written there.
  void keep();

 private:
  std::filesystem::path folder_;
  std::string mark_;
  int file_;
};

/// The folder of a run's flight records, and the one for those that its last start found there.
inline constexpr const char *kFlightFolder = "flight", *kFlightBefore = "flight-before";

/// The run begins, or goes on: what its records tell is over. Those of before them are removed.
void set_flight_aside(const std::filesystem::path& folder) noexcept;

/// Writes a small text file of a run, whole or not at all; a disk that is full is a warning, not the end of the run.
void write_run_file(const std::filesystem::path& path, const std::string& text);

}  // namespace tandem::cli
