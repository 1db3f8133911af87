#include "tandem/base/quote.h"

#include <cstddef>

namespace tandem {

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

namespace {

/// True for C0, DEL and C1 (C1 is C2 80 to C2 9F in UTF-8).
bool is_control(std::string_view text, size_t at, size_t length) {
  const auto byte = static_cast<unsigned char>(text[length == 2 ? at + 1 : at]);
  return length == 1 ? byte < 0x20 || byte == 0x7F : length == 2 && text[at] == '\xC2' && byte < 0xA0;
}

/// Length of the character at `at` if it may be written unchanged; 0 if the byte there must be escaped.
size_t plain_length(std::string_view text, size_t at) {
  const auto length = utf8_length(text, at);
  return length > 0 && is_control(text, at, length) ? 0 : length;
}

/// `kept`: a control character that stays, or 0 for none. `limit`: the result is cut once it has this many bytes.
std::string escaped(std::string_view text, char kept, size_t limit) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (out.size() >= limit) return out + "...";
    const auto value = static_cast<unsigned char>(text[at]);
    const auto length = kept != 0 && text[at] == kept ? 1 : plain_length(text, at);
    if (length == 0) {
      out += {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

constexpr size_t kLongestQuote = 120;

}  // namespace

std::string printable(std::string_view text, size_t limit) { return escaped(text, 0, limit); }
std::string printable_lines(std::string_view text) { return escaped(text, '\n', text.npos); }
std::string quote(std::string_view text) { return "'" + escaped(text, 0, kLongestQuote) + "'"; }

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

bool is_plain_text(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto length = plain_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

}  // namespace tandem
