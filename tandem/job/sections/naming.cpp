#include "tandem/job/sections/naming.h"

#include <array>
#include <cctype>
#include <utility>

#include "tandem/job/job.h"

namespace tandem::job {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

bool is_option(std::string_view text, size_t begin, size_t end) {
  const auto before = text.substr(0, begin);
  for (const std::string_view verb : {"set ", "lower ", "with "}) {
    if (before.ends_with(verb)) return true;
  }
  const bool is_assigned = end < text.size() && text[end] == '=';
  return begin == 0 || is_assigned || text.substr(begin, end - begin).find('_') != text.npos;
}

/// Options that have another name than their setting.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOtherNames = {
    {{"cell_channels", "model.channels"}, {"find_unused_parameters", "ddp.unused=find"}, {"tensor", "mesh.tensor"}}};

std::string setting_of(std::string_view option, const std::vector<std::string_view>& sections) {
  for (const auto& [name, key] : kOtherNames) {
    if (name == option) return std::string(key);
  }
  for (const auto section : sections) {
    const auto key = std::string(section) + "." + std::string(option);
    if (settings::find_setting(schema(), key) != nullptr && option != "name") return key;
  }
  return std::string(option);
}

}  // namespace

std::string with_setting_names(const std::string& text, const std::vector<std::string_view>& sections) {
  std::string result;
  bool is_quoted = false;  // what a user has written stays
  for (size_t at = 0; at < text.size();) {
    const bool is_apostrophe = at > 0 && !is_quoted && is_word(text[at - 1]);
    if (text[at] == '\'' && !is_apostrophe) is_quoted = !is_quoted;
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end == at) {
      result += text[at++];
      continue;
    }
    const auto word = text.substr(at, end - at);
    result += !is_quoted && is_option(text, at, end) ? setting_of(word, sections) : word;
    at = end;
  }
  return result;
}

}  // namespace tandem::job
