#include "tandem/base/bytes.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace tandem {

std::string format_bytes(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "K", "M", "G", "T", "P"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const int digits = unit == 0 ? 0 : (unit >= 3 ? 2 : 1);
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, kUnits[unit]);
  return text;
}

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t sign = count < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > sign + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace tandem
