#include "tandem/settings/detail/toml_depth.h"

#include <algorithm>
#include <string>

namespace tandem::settings::detail {
namespace {

/// The place after the string that begins at `at`: "basic", 'literal', or with three quotes, which may span lines.
size_t end_of_string(std::string_view toml, size_t at) {
  const char quote = toml[at];
  const bool is_long = toml.substr(at).starts_with(std::string(3, quote));
  const std::string close(is_long ? 3 : 1, quote);
  for (at += close.size(); at < toml.size(); ++at) {
    if (toml[at] == '\\' && quote == '"') {
      ++at;
    } else if (toml[at] == '\n' && !is_long) {
      return at;
    } else if (toml.substr(at).starts_with(close)) {
      at += close.size();
      // One or two quotes may come before the three that close.
      for (int more = 0; is_long && more < 2 && at < toml.size() && toml[at] == quote; ++more) ++at;
      return at;
    }
  }
  return toml.size();
}

TextPlace place_of(std::string_view text, size_t at) {
  const auto before = text.substr(0, at);
  const auto line_begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return {static_cast<size_t>(std::ranges::count(before, '\n')) + 1, at - line_begin + 1};
}

}  // namespace

std::optional<TextPlace> find_deep_key(std::string_view toml, int most) {
  constexpr std::string_view kBetweenKeys = "\n=,[]{}";
  int dots = 0;
  size_t key = toml.npos;  // where the key begins; npos: not inside a key
  for (size_t at = 0; at < toml.size();) {
    const char c = toml[at];
    if (c == '#') {
      at = std::min(toml.find('\n', at), toml.size());
      continue;
    }
    if (kBetweenKeys.find(c) != kBetweenKeys.npos) {
      dots = 0;
      key = toml.npos;
    } else if (key == toml.npos && c != ' ' && c != '\t' && c != '\r') {
      key = at;
    }
    if (c == '.' && ++dots >= most) return place_of(toml, key);
    at = c == '"' || c == '\'' ? end_of_string(toml, at) : at + 1;
  }
  return std::nullopt;
}

}  // namespace tandem::settings::detail
