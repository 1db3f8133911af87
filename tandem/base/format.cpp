#include "tandem/base/format.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace tandem {

namespace {

constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};

/// Divides by 1024 while the number is 1024 or more and a larger unit exists; returns the unit's index.
size_t scale_down(double& bytes) {
  size_t unit = 0;
  for (; std::abs(bytes) >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return unit;
}

std::string with_unit(double value, int digits, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, unit);
  return text;
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  auto value = static_cast<double>(bytes);
  const auto unit = scale_down(value);
  return with_unit(value, unit == 0 ? 0 : unit >= 3 ? 2 : 1, kUnits[unit]);
}

std::string format_bytes_short(double bytes) {
  const auto unit = scale_down(bytes);
  const bool is_whole = bytes == std::floor(bytes) || std::abs(bytes) >= 100;
  return with_unit(bytes, is_whole ? 0 : 1, kUnits[unit]);
}

std::string format_percent(double part) { return with_unit(100 * part, 2, "%"); }

std::string format_number(const char* format, std::optional<double> value) {
  if (!value) return "–";
  char text[32];
  std::snprintf(text, sizeof text, format, *value);
  return text;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  while (text.starts_with(' ')) text.remove_prefix(1);
  constexpr std::string_view kUnits = "KMGTP";
  if (!text.empty() && text != "B") {
    const auto power = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text[0]))));
    text.remove_prefix(1);
    if (power == std::string_view::npos || !(text.empty() || text == "B" || text == "iB")) return std::nullopt;
    value *= std::pow(1024.0, static_cast<double>(power + 1));
  }
  return value < 0x1p63 ? std::optional(std::llround(value)) : std::nullopt;
}

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t sign = count < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > sign + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace tandem
