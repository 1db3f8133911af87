#include "tandem/base/env.h"

#include <charconv>
#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem::env {

std::optional<std::string> get(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string(text);
}

std::optional<int64_t> get_int(const char* name) {
  const auto text = get(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (fault != std::errc() || end != text->data() + text->size()) {
    throw SettingsError(std::string("environment variable ") + name + " is '" + *text + "', wanted a whole number");
  }
  return value;
}

}  // namespace tandem::env
