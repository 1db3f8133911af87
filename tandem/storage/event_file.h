#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tandem/storage/log_file.h"

namespace tandem::storage {

/// Curves for TensorBoard, written to a file events.out.tfevents.* in a folder. Each call passes its data to the system
/// before it returns. LogFile describes what happens on a full disk. A folder must have one writer only, because
/// TensorBoard follows one file at a time.
class EventFile {
 public:
  /// Creates the folder. Throws IoError.
  explicit EventFile(const std::filesystem::path& folder);

  void scalar(std::string_view tag, int64_t step, double value);  // stored as float32

  /// Must be called after resuming at `step`: TensorBoard then drops what an earlier file says of later steps.
  void session_start(int64_t step);

  const std::filesystem::path& path() const { return file_.path(); }
  LogFile& file() { return file_; }
  const LogFile& file() const { return file_; }

 private:
  LogFile file_;
};

/// The parts of the format: tensorflow.Event messages as protocol buffers, encoded without a library.
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);
std::string session_start_event(double wall_time, int64_t step);

/// length, masked crc32c of the length, data, masked crc32c of the data.
std::string event_record(std::string_view event);

uint32_t crc32c(std::string_view bytes);

}  // namespace tandem::storage
