#include "tandem/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace tandem {
namespace {

size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
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

std::string wrapped(std::string_view text, size_t columns, size_t indent) {
  std::string result;
  size_t used = 0;  // of the line; 0: it has no word yet
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    const auto width = width_of(word);
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
