#include "tandem/data/glyph/character_set.h"

#include <cstdio>
#include <string>
#include <unordered_set>

namespace tandem::data {
namespace {

constexpr char32_t kUroFirst = 0x4E00, kUroLast = 0x9FA5;

struct Range {
  char32_t first, last;
};
constexpr std::array<Range, 3> kExtensions = {{{0x3400, 0x4DBF}, {0x9FA6, 0x9FFF}, {0x20000, 0x323AF}}};

std::vector<char32_t> rest_of_uro() {
  const auto level1 = gb2312_level1();
  const std::unordered_set<char32_t> taken(level1.begin(), level1.end());
  std::vector<char32_t> rest;
  for (char32_t c = kUroFirst; c <= kUroLast; ++c) {
    if (!taken.contains(c)) rest.push_back(c);
  }
  return rest;
}

std::string utf8(char32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | (c >> 6)), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)};
}

}  // namespace

const char* name_of(Tier tier) {
  switch (tier) {
    case Tier::gb2312:
      return "gb2312";
    case Tier::uro:
      return "uro";
    case Tier::extension:
      return "extension";
  }
  return "";
}

std::vector<char32_t> characters(Tier tier) {
  if (tier == Tier::gb2312) return {gb2312_level1().begin(), gb2312_level1().end()};
  if (tier == Tier::uro) return rest_of_uro();
  std::vector<char32_t> all;
  for (const auto [first, last] : kExtensions) {
    for (char32_t c = first; c <= last; ++c) all.push_back(c);
  }
  return all;
}

std::string character_name(char32_t character) {
  char code[16];
  std::snprintf(code, sizeof code, " U+%04X", static_cast<unsigned>(character));
  return utf8(character) + code;
}

}  // namespace tandem::data
