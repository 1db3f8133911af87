#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace tandem::storage {

/// A file that records are appended to, each handed to the system before append() returns.
/// A disk that fills up costs records, not the run: one warning, and writing goes on where it can; no record is torn.
/// One thread uses it.
class LogFile {
 public:
  enum class Start { append, anew };

  /// `lost` begins the warning of a record that could not be written: "the log has gaps". Throws IoError.
  LogFile(std::filesystem::path path, Start start, std::string lost);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  void append(std::string_view record);

  /// False when somebody has removed the file, or its folder, or has put another file in its place. Records then go
  /// where nobody finds them.
  bool is_in_place() const;

  /// Makes the path lead to the file's records again: a file that is missing is made anew, its folder too, and gets all
  /// records so far; another file in its place is gone on with. Throws IoError; the old file then stays in use.
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
