#pragma once
#include <filesystem>
#include <string>

#include "tandem/train/fields.h"

namespace tandem::train {

/// A log of one JSON object a line, each line handed to the system before write() returns.
/// A disk that fills up costs lines, not the run: one warning, and writing goes on where it can; no line is ever torn.
class JsonLog {
 public:
  /// `append`: goes on after what is there, on a new line if the last one was cut short. Throws IoError.
  JsonLog(std::filesystem::path path, bool append);
  ~JsonLog();
  JsonLog(const JsonLog&) = delete;
  JsonLog& operator=(const JsonLog&) = delete;

  /// {{"event", "step"}, {"step", 3}, {"loss", 0.5}}
  void write(const Fields& fields);

 private:
  std::filesystem::path path_;
  int descriptor_;
  bool warned_ = false;
};

/// One object on one line, in the order of the fields. JSON has no infinity and no NaN: they become null. Bytes that
/// are not UTF-8 become U+FFFD.
std::string json_line(const Fields& fields);

}  // namespace tandem::train
