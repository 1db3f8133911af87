#include "tandem/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "tandem/base/quote.h"

namespace tandem {
namespace {

struct Range {
  char32_t first, last;
};

/// Sorted. Unicode 15: the blocks of combining marks outside of scripts, and of characters that are not shown.
constexpr Range kNoColumn[] = {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F},
                               {0x20D0, 0x20FF}, {0x3099, 0x309A}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};

/// Sorted. Unicode 15, EastAsianWidth.txt: the blocks whose characters are wide or full-width.
constexpr Range kTwoColumns[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97C},
                                 {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE10, 0xFE19},   {0xFE30, 0xFE6B},
                                 {0xFF01, 0xFF60},   {0xFFE0, 0xFFE6},   {0x16FE0, 0x1B2FB}, {0x1F300, 0x1F64F},
                                 {0x1F680, 0x1F6FC}, {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};

bool is_in(std::span<const Range> ranges, char32_t code) {
  const auto found = std::ranges::lower_bound(ranges, code, {}, &Range::last);
  return found != ranges.end() && found->first <= code;
}

size_t width_of(char32_t code) { return is_in(kNoColumn, code) ? 0 : is_in(kTwoColumns, code) ? 2 : 1; }

/// Of a well-formed UTF-8 character.
char32_t code_of(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  char32_t code = character.size() == 1 ? first : first & (0x7FU >> character.size());
  for (const char next : character.substr(1)) code = code << 6U | (static_cast<unsigned char>(next) & 0x3FU);
  return code;
}

}  // namespace

int terminal_columns(int stream) {
  if (!isatty(stream)) return 0;
  winsize size{};
  if (ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int number = columns ? std::atoi(columns) : 0;
  return number > 0 ? number : 80;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    const auto length = utf8_length(text, at);
    width += length == 0 ? 1 : width_of(code_of(text.substr(at, length)));
    at += std::max<size_t>(length, 1);
  }
  return width;
}

std::string wrapped(std::string_view text, size_t columns, size_t indent) {
  std::string result;
  size_t used = 0;  // of the line; 0: it has no word yet
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    const auto width = display_width(word);
    if (used > 0 && used + 1 + width > columns) {
      result += '\n';
      used = 0;
    }
    result.append(used == 0 ? indent : 1, ' ').append(word);
    used += (used == 0 ? indent : 1) + width;
  }
  return result + "\n";
}

}  // namespace tandem
