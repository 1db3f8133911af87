#include "tandem/cli/result.h"

#include <cerrno>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/storage/named_file.h"

namespace tandem::cli {
namespace {

constexpr const char* kCsv = "--csv";

std::string reason() { return std::generic_category().message(errno); }

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_stdout();
}

/// Escapes the control characters U+007F-009F, which nlohmann does not escape.
std::string json_text(const nlohmann::json& json) {
  // Texts from outside (paths, messages) may hold bytes that JSON does not allow: they become U+FFFD.
  const auto text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool is_pair = text[at] == '\xC2' && static_cast<unsigned char>(text[at + 1]) < 0xA0;
    if (!is_pair && text[at] != '\x7F') {
      result += text[at];
      continue;
    }
    if (is_pair) ++at;
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(text[at])));
    result += code;
  }
  return result + "\n";
}

}  // namespace

void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) throw IoError("stdout cannot be written", reason());
}

void check_output_files(const Command& command, const Arguments& arguments) {
  std::map<std::string, std::string> takers;  // of each path
  for (const auto& flag : command.flags) {
    const auto path = arguments.flag(flag.name);
    if (!flag.is_output || !path) continue;
    const auto [taker, is_first] = takers.emplace(*path, flag.name);
    if (!is_first && !path->starts_with("/dev/")) {
      throw UsageError(taker->second + " and " + std::string(flag.name) + " are both " + quote(*path) +
                       ", wanted a file for each");
    }
    if (*path != "-") storage::check_named_file(std::string(flag.name) + " file", *path);
  }
}

void write_rows(const Arguments& arguments, const std::string& csv) {
  const auto path = arguments.flag(kCsv);
  if (path == "-") return print(csv);
  if (path) storage::write_named_file("--csv file", *path, csv);
}

void write_result(const Arguments& arguments, const std::string& text, const nlohmann::json& json) {
  const auto path = arguments.flag("--json");
  const auto written = json_text(json);
  if (path != "-" && arguments.flag(kCsv) != "-") print(printable_lines(text));
  if (!path) return;
  if (*path == "-") return print(written);
  storage::write_named_file("--json file", *path, written);
}

}  // namespace tandem::cli
