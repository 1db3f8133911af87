#include "tandem/launch/detail/last_lines.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace tandem::launch::detail {

namespace fs = std::filesystem;

LastLines::LastLines() {
  std::error_code fault;
  auto pattern = (fs::temp_directory_path(fault) / "tandem-launch-XXXXXX").string();
  if (!fault && mkdtemp(pattern.data()) != nullptr) folder_ = pattern;
}

LastLines::~LastLines() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::string LastLines::path(int rank) const {
  return folder_.empty() ? "" : (folder_ / (std::to_string(rank) + ".json")).string();
}

std::optional<std::string> LastLines::line(int rank) const {
  std::ifstream file(path(rank));
  const auto error = nlohmann::json::parse(file, nullptr, false);
  if (!error.is_object()) return std::nullopt;
  const auto line = error.find("line");
  return line != error.end() && line->is_string() ? std::optional(line->get<std::string>()) : std::nullopt;
}

}  // namespace tandem::launch::detail
