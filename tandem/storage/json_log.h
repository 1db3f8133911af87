#pragma once
#include <filesystem>
#include <string>

#include "tandem/storage/fields.h"
#include "tandem/storage/log_file.h"

namespace tandem::storage {

/// A log with one JSON object per line. Each line is passed to the system before write() returns. LogFile describes
/// what happens on a full disk.
class JsonLog {
 public:
  /// `append`: keeps the existing lines and continues on a new line, even if the last was cut short. Throws IoError.
  JsonLog(std::filesystem::path path, bool append);

  /// {{"event", "step"}, {"step", 3}, {"loss", 0.5}}
  void write(const Fields& fields);

  LogFile& file() { return file_; }
  const LogFile& file() const { return file_; }

 private:
  LogFile file_;
};

/// One object on one line, in the order of the fields. Infinity and NaN, which JSON lacks, become null. Bytes that are
/// not UTF-8 become U+FFFD.
std::string json_line(const Fields& fields);

}  // namespace tandem::storage
