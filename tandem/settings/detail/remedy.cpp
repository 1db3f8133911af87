#include "tandem/settings/detail/remedy.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/settings/value.h"

namespace tandem::settings::detail {
namespace {

std::string_view trimmed(std::string_view text, std::string_view around) {
  const auto begin = text.find_first_not_of(around);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(around) + 1 - begin);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (auto& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// "did you mean KEY=VALUE?", for words of a sane length.
std::string mean(std::string_view key, std::string_view value) {
  return "did you mean " + printable(std::string(key) + "=" + std::string(value), 120) + "?";
}

bool accepts(const Setting& setting, std::string_view value) {
  try {
    read_value(setting, value);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// True for a choice, and for "images:photos" where "images:DIR" is wanted.
bool offers(const Setting& setting, std::string_view value) {
  if (std::ranges::find(setting.choices, value) != setting.choices.end()) return true;
  const auto colon = value.find(':');
  return colon != value.npos && colon + 1 < value.size() && setting.other.read != nullptr &&
         setting.other.wanted.find(std::string(value.substr(0, colon + 1))) != std::string_view::npos;
}

std::string remedy_for_bare_value(Schema schema, std::string_view value) {
  std::vector<std::string> words;
  for (const auto& setting : schema) {
    if (offers(setting, value)) words.push_back(std::string(setting.key) + "=" + printable(value, 120));
  }
  constexpr size_t kFew = 2;  // "true" or "none" may be the value of many
  return words.size() <= kFew ? did_you_mean(words) : "";
}

}  // namespace

std::string remedy_for_word(Schema schema, std::string_view word, std::span<const std::string> rest) {
  const std::string_view next = rest.empty() ? std::string_view() : std::string_view(rest[0]);
  const bool next_is_value = !next.empty() && next.find('=') == next.npos && find_setting(schema, next) == nullptr;
  if (find_setting(schema, word) != nullptr) {
    if (next == "=" && rest.size() > 1) return mean(word, rest[1]) + " (without spaces)";
    if (next.size() > 1 && next[0] == '=') return mean(word, next.substr(1)) + " (without a space)";
    return mean(word, next_is_value ? next : "...");
  }
  if (word.ends_with('=') && next_is_value) return mean(word.substr(0, word.size() - 1), next) + " (without a space)";
  const auto colon = word.find(':');
  if (colon != word.npos && find_setting(schema, word.substr(0, colon)) != nullptr) {
    const auto value = word.substr(colon + 1);
    return mean(word.substr(0, colon), value.empty() && next_is_value ? next : value.empty() ? "..." : value);
  }
  if (auto remedy = remedy_for_bare_value(schema, word); !remedy.empty()) return remedy;
  const auto similar = similar_keys(schema, word);
  return similar.empty() ? "" : mean(similar.front(), "...");
}

std::string remedy_for_spaces(Schema schema, std::string_view key, std::string_view value) {
  if (find_setting(schema, trimmed(key, " ")) != nullptr) {
    return mean(trimmed(key, " "), trimmed(value, " ")) + " (without spaces)";
  }
  return did_you_mean(similar_keys(schema, key));
}

std::string remedy_for_value(const Setting& setting, std::string_view value) {
  const auto bare = trimmed(value, " \t");
  if (bare != value && accepts(setting, bare)) return mean(setting.key, bare) + " (without a space)";
  const auto unquoted = trimmed(value, "\"'");
  if (unquoted != value && accepts(setting, unquoted)) return mean(setting.key, unquoted) + " (without quotes)";
  const auto inner = trimmed(value, "[]");
  if (inner != value && accepts(setting, inner)) return mean(setting.key, inner) + " (without brackets)";
  if (const auto small = lower(value); small != value && accepts(setting, small)) return mean(setting.key, small);
  auto pointed = std::string(value);
  std::ranges::replace(pointed, ',', '.');
  if (pointed != value && std::holds_alternative<double>(setting.default_value) && accepts(setting, pointed)) {
    return mean(setting.key, pointed) + " (with a point)";
  }
  return "";
}

}  // namespace tandem::settings::detail
