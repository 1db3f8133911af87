#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace tandem::storage {

/// A file to which records are appended. Each record is passed to the system before append() returns.
/// A full disk loses records, but does not stop the run: one warning is logged, and writing continues when it can. No
/// record is written in part (on a device or a pipe it may be). Must be used by one thread.
class LogFile {
 public:
  enum class Start { append, anew };

  /// `lost` is the beginning of the warning about a record that could not be written: "the log has gaps". Throws
  /// IoError.
  LogFile(std::filesystem::path path, Start start, std::string lost);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  void append(std::string_view record);

  /// False if the file or its folder was removed, or another file has taken its place. Records are then written to a
  /// file that is no longer found at path().
  bool is_in_place() const;

  /// Reopens the path. If the file is missing, creates it and its folder again and copies all records so far into it;
  /// if another file has taken its place, continues with that one. Throws IoError; the old file then stays in use.
  void put_back();

  bool ends_inside_a_line() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string lost_;
  int descriptor_;
  bool warned_ = false;
};

}  // namespace tandem::storage
