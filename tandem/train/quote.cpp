#include "tandem/train/quote.h"

#include <cstddef>

namespace tandem::train {
namespace {

/// Bytes of the UTF-8 character that begins at `at`; 0 when it is malformed (Unicode 15, table 3-7).
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto first = byte(at), second = byte(at + 1);
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(at + 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0, surrogate = first == 0xED && second > 0x9F;
    return follows(at + 1) && follows(at + 2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90, too_high = first == 0xF4 && second > 0x8F;
    return follows(at + 1) && follows(at + 2) && follows(at + 3) && !overlong && !too_high ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string quote(std::string_view text) {
  constexpr size_t kLimit = 120;
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out = "'";
  for (size_t at = 0; at < text.size();) {
    if (out.size() > kLimit) return out + "...'";
    const auto value = static_cast<unsigned char>(text[at]);
    const auto length = utf8_length(text, at);
    if (length == 0 || value < 0x20 || value == 0x7F) {
      out += {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out + "'";
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

}  // namespace tandem::train
