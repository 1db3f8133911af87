#include "tandem/settings/value.h"

#include <array>
#include <charconv>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"

namespace tandem::settings {
namespace {

constexpr size_t kLongestText = 4096;  // as long as a path may be

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// `text` without its underscores; nullopt if one is not between two digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return result;
}

template <class Number>
std::optional<Number> read_all(const std::string& text) {
  Number number{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <class Number>
std::string shortest(Number number) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  std::string text(buffer.data(), end);
  // 5e-04 becomes 5e-4.
  const auto exponent = text.find('e');
  if (exponent != text.npos && text[exponent + 2] == '0') text.erase(exponent + 2, 1);
  return text;
}

bool is_in(const Range& range, double number) {
  return (range.above_least ? number > range.least : number >= range.least) &&
         (range.below_most ? number < range.most : number <= range.most);
}

std::string bound(double number, bool is_whole) {
  return is_whole ? std::to_string(static_cast<int64_t>(number)) : shortest(number);
}

/// The bounds in words; "" for a range without bounds.
std::string wanted_range(const Range& range, bool is_whole) {
  if (std::isinf(range.least)) return std::isinf(range.most) ? "" : "at most " + bound(range.most, is_whole);
  const auto least = bound(range.least, is_whole);
  const auto from = range.above_least ? "more than " + least : least;
  if (std::isinf(range.most)) return range.above_least ? from : from + " or more";
  if (range.below_most) return from + " or more, less than " + bound(range.most, is_whole);
  return range.above_least ? from + " up to " + bound(range.most, is_whole) : from + ".." + bound(range.most, is_whole);
}

[[noreturn]] void reject(const Setting& setting, const std::string& shown, const std::string& wanted,
                         const std::string& remedy = "") {
  throw SettingsError(std::string(setting.key) + " is " + shown + ", wanted " + wanted, remedy);
}

int64_t integer_of(const Setting& setting, std::string_view text) {
  const auto number = read_integer(text);
  if (!number) reject(setting, quote(text), "a whole number");
  if (!is_in(setting.range, static_cast<double>(*number))) {
    reject(setting, std::to_string(*number), wanted_range(setting.range, true));
  }
  return *number;
}

double number_of(const Setting& setting, std::string_view text) {
  const auto number = read_number(text);
  if (!number) reject(setting, quote(text), "a number");
  if (!is_in(setting.range, *number)) reject(setting, shortest(*number), wanted_range(setting.range, false));
  return *number;
}

bool truth_of(const Setting& setting, std::string_view text) {
  for (const auto yes : {"true", "yes", "on", "1"}) {
    if (text == yes) return true;
  }
  for (const auto no : {"false", "no", "off", "0"}) {
    if (text == no) return false;
  }
  reject(setting, quote(text), "true or false");
}

std::string text_of(const Setting& setting, std::string_view text) {
  if (text.size() > kLongestText) reject(setting, quote(text), "at most " + std::to_string(kLongestText) + " bytes");
  if (!is_plain_text(text)) reject(setting, quote(text), "UTF-8 without control characters");
  for (const auto& [alias, choice] : setting.aliases) {
    if (text == alias) return std::string(choice);
  }
  for (const auto choice : setting.choices) {
    if (text == choice) return std::string(choice);
  }
  if (setting.other.read) {
    if (auto normal = setting.other.read(text)) return *normal;
  } else if (setting.choices.empty()) {
    return std::string(text);
  }
  reject(setting, quote(text), wanted(setting), did_you_mean(nearest(text, setting.choices)));
}

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto place = text.find(separator);
    parts.emplace_back(text.substr(0, place));
    text = place == text.npos ? "" : text.substr(place + 1);
  }
  return parts;
}

}  // namespace

std::optional<std::string> read_size(std::string_view text) {
  if (!parse_bytes(text)) return std::nullopt;
  return std::string(text);
}

std::optional<int64_t> read_integer(std::string_view text) {
  const auto plain = without_underscores(text);
  if (!plain) return std::nullopt;
  if (const auto number = read_all<int64_t>(*plain)) return number;
  const auto number = read_all<double>(*plain);
  constexpr double kExact = 9007199254740992;  // 2^53: above it a double skips whole numbers
  if (!number || !(std::abs(*number) <= kExact) || std::trunc(*number) != *number) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<double> read_number(std::string_view text) {
  const auto plain = without_underscores(text);
  if (!plain) return std::nullopt;
  const auto number = read_all<double>(*plain);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

Value read_value(const Setting& setting, std::string_view text) {
  struct {
    const Setting& setting;
    std::string_view text;
    Value operator()(int64_t) const { return integer_of(setting, text); }
    Value operator()(double) const { return number_of(setting, text); }
    Value operator()(bool) const { return truth_of(setting, text); }
    Value operator()(const std::string&) const { return text_of(setting, text); }
    Value operator()(const std::vector<std::string>&) const { return read_list(setting, split_at(text, ',')); }
    Value operator()(const std::vector<double>&) const { return read_list(setting, split_at(text, ',')); }
  } reader{setting, text};
  return std::visit(reader, setting.default_value);
}

Value read_list(const Setting& setting, const std::vector<std::string>& parts) {
  if (std::holds_alternative<std::vector<double>>(setting.default_value)) {
    std::vector<double> numbers;
    for (const auto& part : parts) numbers.push_back(number_of(setting, part));
    return numbers;
  }
  std::vector<std::string> texts;
  for (const auto& part : parts) {
    if (part.empty())
      reject(setting, "a list with an empty part",
             setting.other.read ? "a comma only between two" : "names with a comma between them");
    texts.push_back(text_of(setting, part));
  }
  return texts;
}

std::string format_value(const Value& value) {
  struct {
    std::string operator()(int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return shortest(number); }
    std::string operator()(bool truth) const { return truth ? "true" : "false"; }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<std::string>& texts) const { return join(texts); }
    std::string operator()(const std::vector<double>& numbers) const {
      std::vector<std::string> texts;
      for (const double number : numbers) texts.push_back(shortest(number));
      return join(texts);
    }
    static std::string join(const std::vector<std::string>& texts) {
      std::string result;
      for (const auto& text : texts) result += (result.empty() ? "" : ",") + text;
      return result;
    }
  } formatter;
  return std::visit(formatter, value);
}

std::string wanted_kind(const Setting& setting) {
  struct {
    std::string operator()(int64_t) const { return "a whole number"; }
    std::string operator()(double) const { return "a number"; }
    std::string operator()(bool) const { return "true or false"; }
    std::string operator()(const std::string&) const { return "text"; }
    std::string operator()(const std::vector<std::string>&) const { return "names with a comma between them"; }
    std::string operator()(const std::vector<double>&) const { return "numbers with a comma between them"; }
  } name;
  const bool has_names = !setting.choices.empty() || setting.other.read;
  return has_names ? wanted(setting) : std::visit(name, setting.default_value);
}

std::string wanted(const Setting& setting) {
  if (!setting.choices.empty() || setting.other.read) {
    std::vector<std::string> words(setting.choices.begin(), setting.choices.end());
    if (setting.other.read) {
      for (const auto& text : split_at(setting.other.wanted, '|')) words.push_back(text);
    }
    return one_of(words);
  }
  constexpr double kHuge = 1e9;  // a safety limit, not worth mentioning
  auto shown = setting.range;
  if (shown.most >= kHuge) shown.most = std::numeric_limits<double>::infinity();
  const auto range = wanted_range(shown, std::holds_alternative<int64_t>(setting.default_value));
  const auto kind = wanted_kind(setting);
  if (range.empty()) return kind;
  return std::holds_alternative<std::vector<double>>(setting.default_value) ? kind + ", each " + range : range;
}

}  // namespace tandem::settings
