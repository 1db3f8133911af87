#include "tandem/base/log.h"

#include <cstdio>
#include <mutex>
#include <string>

#include "tandem/base/quote.h"

namespace tandem::log {
namespace {

std::mutex mutex;
bool line_is_open = false;

void write(std::string text, bool open_line) {
  const std::lock_guard lock(mutex);
  if (line_is_open) text.insert(0, "\r\x1b[K");
  line_is_open = open_line;
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void info(std::string_view text) { write(printable(text) + "\n", false); }
void warn(std::string_view text) { write("warning: " + printable(text) + "\n", false); }
void raw(std::string_view text, bool open_line) { write(std::string(text), open_line); }

}  // namespace tandem::log
