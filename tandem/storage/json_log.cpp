#include "tandem/storage/json_log.h"

#include <nlohmann/json.hpp>

namespace tandem::storage {

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

JsonLog::JsonLog(std::filesystem::path path, bool append)
    : file_(std::move(path), append ? LogFile::Start::append : LogFile::Start::anew, "the log has gaps") {
  if (append && file_.ends_inside_a_line()) file_.append("\n");
}

void JsonLog::write(const Fields& fields) { file_.append(json_line(fields) + "\n"); }

}  // namespace tandem::storage
