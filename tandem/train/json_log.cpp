#include "tandem/train/json_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/train/file_io.h"

namespace tandem::train {
namespace {

bool ends_inside_a_line(int descriptor) {
  const auto size = lseek(descriptor, 0, SEEK_END);
  char last = '\n';
  return size > 0 && pread(descriptor, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

std::string json_line(const Fields& fields) {
  std::string line = "{";
  const auto put = [&line](const nlohmann::json& json) {
    line += json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  for (const auto& [key, value] : fields) {
    if (line.size() > 1) line += ',';
    put(key);
    line += ':';
    std::visit(put, value);
  }
  return line += '}';
}

JsonLog::JsonLog(std::filesystem::path path, bool append) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666);
  if (descriptor_ < 0) throw IoError("cannot write " + quote(path_.string()) + ": " + std::strerror(errno));
  if (append && ends_inside_a_line(descriptor_)) append_whole(descriptor_, "\n");
}

JsonLog::~JsonLog() { close(descriptor_); }

void JsonLog::write(const Fields& fields) {
  if (const auto reason = append_whole(descriptor_, json_line(fields) + "\n"); !reason.empty() && !warned_) {
    warned_ = true;
    log::warn("the log has gaps: cannot write " + quote(path_.string()) + ": " + reason);
  }
}

}  // namespace tandem::train
