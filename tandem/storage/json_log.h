#pragma once
#include <filesystem>
#include <string>

#include "tandem/storage/fields.h"
#include "tandem/storage/log_file.h"

namespace tandem::storage {

/// A log of one JSON object a line, each line handed to the system before write() returns. A full disk: see LogFile.
class JsonLog {
 public:
  /// `append`: goes on after what is there, on a new line if the last one was cut short. Throws IoError.
  JsonLog(std::filesystem::path path, bool append);

  /// {{"event", "step"}, {"step", 3}, {"loss", 0.5}}
  void write(const Fields& fields);

  LogFile& file() { return file_; }
  const LogFile& file() const { return file_; }

 private:
  LogFile file_;
};

/// One object on one line, in the order of the fields. JSON has no infinity and no NaN: they become null. Bytes that
/// are not UTF-8 become U+FFFD.
std::string json_line(const Fields& fields);

}  // namespace tandem::storage
