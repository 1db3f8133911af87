#include "tandem/settings/settings.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/base/terminal.h"
#include "tandem/settings/detail/names_given.h"
#include "tandem/settings/detail/remedy.h"
#include "tandem/settings/value.h"

namespace tandem::settings {
namespace {

std::string shown_default(const Setting& setting) {
  const auto text = format_value(setting.default_value);
  return text.empty() ? "(empty)" : text;
}

/// The meaning of a setting, and how it was called.
std::string meaning(const Setting& setting) {
  const auto former = setting.former_key.empty() ? "" : "; formerly " + std::string(setting.former_key);
  return std::string(setting.doc) + former;
}

}  // namespace

Settings::Settings(Schema schema) : schema_(schema) {
  for (const auto& setting : schema) entries_.push_back({setting.default_value});
}

void Settings::set(std::string_view key, std::string_view text) {
  const auto& setting = require(key);
  try {
    put(setting, read_value(setting, text));
  } catch (Error& error) {
    if (error.remedy().empty()) error.set_remedy(detail::remedy_for_value(setting, text));
    throw;
  }
}

void Settings::apply(std::span<const std::string> words) {
  detail::NamesGiven names(schema_);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const auto equals = word.find('=');
    const bool has_key = equals != 0 && equals != word.npos;
    const bool has_lost_value = word.ends_with('=') && i + 1 < words.size() && words[i + 1].find('=') == word.npos;
    if (!has_key || has_lost_value) {
      throw UsageError("argument " + quote(word) + " is " +
                           (has_key ? "without a value" : "neither a flag nor key=value") + ", wanted key=value",
                       detail::remedy_for_word(schema_, word, words.subspan(i + 1)));
    }
    const auto key = word.substr(0, equals);
    if (find_setting(schema_, key) == nullptr && (key.starts_with(' ') || key.ends_with(' '))) {
      throw SettingsError("setting " + quote(key) + " is unknown, wanted one of the settings",
                          detail::remedy_for_spaces(schema_, key, word.substr(equals + 1)));
    }
    set(key, word.substr(equals + 1));
    names.add(key);
  }
}

const Setting& Settings::require(std::string_view key) const {
  if (const auto* setting = find_setting(schema_, key)) return *setting;
  constexpr size_t kFew = 16;  // as those of a benchmark, which no help lists
  auto remedy = did_you_mean(similar_keys(schema_, key));
  if (remedy.empty() && schema_.size() > kFew) remedy = "--help lists them";
  if (remedy.empty()) {
    std::vector<std::string> keys;
    for (const auto& setting : schema_) keys.emplace_back(setting.key);
    remedy = one_of(keys);
  }
  throw SettingsError("setting " + quote(key) + " is unknown, wanted one of the settings", remedy);
}

void Settings::choose(std::string_view key, std::string_view text) {
  const auto& setting = require(key);
  entries_[&setting - schema_.data()].value = read_value(setting, text);
}

void Settings::put(const Setting& setting, Value value) {
  entries_[&setting - schema_.data()] = {std::move(value), true};
}

size_t Settings::index_of(std::string_view key) const {
  const auto* setting = find_setting(schema_, key);
  TORCH_INTERNAL_ASSERT(setting != nullptr, "no setting '", key, "'");
  return setting - schema_.data();
}

template <class T>
const T& Settings::get_as(std::string_view key) const {
  const auto* value = std::get_if<T>(&get(key));
  TORCH_INTERNAL_ASSERT(value != nullptr, "setting '", key, "' is of another type");
  return *value;
}

const Value& Settings::get(std::string_view key) const { return entries_[index_of(key)].value; }
int64_t Settings::get_int(std::string_view key) const { return get_as<int64_t>(key); }
double Settings::get_float(std::string_view key) const { return get_as<double>(key); }
bool Settings::get_bool(std::string_view key) const { return get_as<bool>(key); }
const std::string& Settings::get_string(std::string_view key) const { return get_as<std::string>(key); }
const std::vector<std::string>& Settings::get_list(std::string_view key) const {
  return get_as<std::vector<std::string>>(key);
}
const std::vector<double>& Settings::get_numbers(std::string_view key) const {
  return get_as<std::vector<double>>(key);
}

bool Settings::given(std::string_view key) const { return entries_[index_of(key)].given; }

bool Settings::is_default(std::string_view key) const {
  const auto index = index_of(key);
  return entries_[index].value == schema_[index].default_value;
}

std::string describe(Schema schema, size_t columns) {
  constexpr size_t kIndent = 4;
  std::string text;
  for (const auto& setting : schema) {
    text += std::string(setting.key) + "  " + shown_default(setting) + "\n";
    text += wrapped(meaning(setting) + " (" + wanted(setting) + ")", columns, kIndent);
  }
  return text;
}

std::string describe_markdown(Schema schema) {
  std::string text;
  for (const auto& setting : schema) {
    text += "| `" + std::string(setting.key) + "` | " + shown_default(setting) + " | " + wanted(setting) + " | " +
            meaning(setting) + " |\n";
  }
  return text;
}

}  // namespace tandem::settings
