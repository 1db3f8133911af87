#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::settings {

/// What a setting can hold. The type of its default is the type of the setting.
using Value = std::variant<int64_t, double, bool, std::string, std::vector<std::string>, std::vector<double>>;

/// Numbers that a setting takes (each element, for a list of numbers).
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // `least` itself is not in the range
  bool below_most = false;   // `most` itself is not in the range
};

/// Texts that a setting takes beside its choices.
struct OtherText {
  std::string_view wanted;                                              // for people: "images:DIR|faces:DIR"
  std::optional<std::string> (*read)(std::string_view text) = nullptr;  // its normal form; nothing: not such a text
};

struct Setting {
  std::string_view key;
  Value default_value;
  std::string_view doc;  // one line
  Range range{};
  std::vector<std::string_view> choices{};                               // text: empty and no `other`: any text
  std::vector<std::pair<std::string_view, std::string_view>> aliases{};  // text: another name -> its choice
  OtherText other{};
};

using Schema = std::span<const Setting>;

/// The setting of that name; null when there is none. `head.name` is another spelling of `head`, and so with every
/// setting that is a section as well: a TOML file cannot hold both `head = ..` and `[head]`.
const Setting* find_setting(Schema schema, std::string_view key);

/// Settings `key.…` exist.
bool is_section(Schema schema, std::string_view key);

/// The keys that someone who wrote `key` may have meant: those nearest by edit distance, by the whole key or by its
/// last part; at most three, none when nothing is near.
std::vector<std::string> similar_keys(Schema schema, std::string_view key);

}  // namespace tandem::settings
