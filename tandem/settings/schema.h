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

/// A value of a setting. A setting has the type of its default.
using Value = std::variant<int64_t, double, bool, std::string, std::vector<std::string>, std::vector<double>>;

/// The numbers that a setting accepts (each element, for a list of numbers).
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // `least` itself is not in the range
  bool below_most = false;   // `most` itself is not in the range
};

/// Texts that a setting accepts besides its choices.
struct OtherText {
  std::string_view wanted;                                              // for people: "images:DIR|faces:DIR"
  std::optional<std::string> (*read)(std::string_view text) = nullptr;  // its normal form; nullopt: not accepted
};

struct Setting {
  std::string_view key;
  Value default_value;
  std::string_view doc;  // one line
  Range range{};
  std::vector<std::string_view> choices{};                               // text: empty and no `other`: any text
  std::vector<std::pair<std::string_view, std::string_view>> aliases{};  // text: another name -> its choice
  OtherText other{};
  std::string_view former_key{};  // which files and words may still give in place of `key`
};

using Schema = std::span<const Setting>;

/// The setting called `key`, or formerly called so; null if there is none. A setting that is also a section has a
/// second spelling, such as `head.name` for `head`, because a TOML file cannot hold both `head = ..` and `[head]`.
const Setting* find_setting(Schema schema, std::string_view key);

/// True if there are settings `key.…`.
bool is_section(Schema schema, std::string_view key);

/// The keys that may have been meant by an unknown `key`: in the usual spelling, the nearest by edit distance of the
/// whole key; if there is none, of the last part; else those whose meaning or last part has its words. At most three;
/// empty if none is near.
std::vector<std::string> similar_keys(Schema schema, std::string_view key);

}  // namespace tandem::settings
