#pragma once
#include <filesystem>
#include <string>

namespace tandem::cli {

/// Makes the run's folder: `out`, or runs/<date>-<letter> with the first letter that is free. `out` may be a link; what
/// a run opens or fills inside may not. Throws IoError.
std::filesystem::path make_run_folder(const std::string& out);

/// Keeps a second run out of the folder as long as this lives, also when the process is killed. A file system that
/// knows no locks lets everybody in. Throws SettingsError when another run is in it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_;
};

/// Writes a small text file of a run, whole or not at all; a disk that is full is a warning, not the end of the run.
void write_run_file(const std::filesystem::path& path, const std::string& text);

}  // namespace tandem::cli
