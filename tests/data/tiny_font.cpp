#include "tests/data/tiny_font.h"

#include <algorithm>
#include <map>

namespace tandem::test {
namespace {

void put(std::string& out, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xFF);
}

void put_all(std::string& out, std::initializer_list<int> shorts) {
  for (const int value : shorts) put(out, static_cast<uint16_t>(value), 2);
}

std::string glyph_bytes(const std::vector<Box>& boxes) {
  if (boxes.empty()) return "";
  Box all = boxes.front();
  for (const auto& box : boxes) {
    all = {std::min(all.left, box.left), std::min(all.bottom, box.bottom), std::max(all.right, box.right),
           std::max(all.top, box.top)};
  }
  std::string out;
  put_all(out, {static_cast<int>(boxes.size()), all.left, all.bottom, all.right, all.top});
  for (size_t i = 0; i < boxes.size(); ++i) put(out, 4 * i + 3, 2);  // last point of each contour
  put(out, 0, 2);                                                    // no instructions
  out.append(boxes.size() * 4, '\x01');                              // all on the curve, two bytes a coordinate
  int x = 0, y = 0;
  const auto step = [&out](int& at, int to) {
    put_all(out, {to - at});
    at = to;
  };
  for (const auto& box : boxes) {
    for (const int to : {box.left, box.left, box.right, box.right}) step(x, to);
  }
  for (const auto& box : boxes) {
    for (const int to : {box.bottom, box.top, box.top, box.bottom}) step(y, to);
  }
  if (out.size() % 2 != 0) out += '\0';
  return out;
}

std::string character_map(const std::vector<TinyGlyph>& glyphs) {
  std::map<char32_t, size_t> sorted;
  for (size_t i = 0; i < glyphs.size(); ++i) sorted[glyphs[i].character] = i + 1;
  std::string out;
  put_all(out, {0, 1, 3, 10});  // Windows, full Unicode
  put(out, 12, 4);
  put_all(out, {12, 0});
  put(out, 16 + 12 * sorted.size(), 4);
  put(out, 0, 4);
  put(out, sorted.size(), 4);
  for (const auto& [character, glyph] : sorted) {
    put(out, character, 4);
    put(out, character, 4);
    put(out, glyph, 4);
  }
  return out;
}

std::map<std::string, std::string> make_tables(const std::vector<TinyGlyph>& glyphs) {
  std::map<std::string, std::string> tables;
  const int count = static_cast<int>(glyphs.size()) + 1;
  std::string &glyf = tables["glyf"], &loca = tables["loca"], &metrics = tables["hmtx"], &head = tables["head"];
  put(loca, 0, 4);
  put(loca, 0, 4);
  put_all(metrics, {1000, 0});
  for (const auto& glyph : glyphs) {
    glyf += glyph_bytes(glyph.boxes);
    put(loca, glyf.size(), 4);
    put_all(metrics, {1000, 0});
  }
  if (glyf.empty()) glyf = std::string(4, '\0');
  tables["cmap"] = character_map(glyphs);
  put(head, 0x00010000, 4);
  put(head, 0x00010000, 4);
  put(head, 0, 4);
  put(head, 0x5F0F3CF5, 4);
  put_all(head, {0, 1000});
  head.append(16, '\0');
  put_all(head, {0, 0, 1000, 1000, 0, 8, 2, 1, 0});  // box, style, smallest size, direction, long offsets
  put(tables["hhea"], 0x00010000, 4);
  put_all(tables["hhea"], {800, -200, 0, 1000, 0, 0, 1000, 1, 0, 0, 0, 0, 0, 0, 0, count});
  put(tables["maxp"], 0x00010000, 4);
  put_all(tables["maxp"], {count, 64, 16, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  return tables;
}

}  // namespace

std::string tiny_font(const std::vector<TinyGlyph>& glyphs) {
  const auto tables = make_tables(glyphs);
  std::string directory, body;
  put(directory, 0x00010000, 4);
  put_all(directory, {static_cast<int>(tables.size()), 0, 0, 0});
  const size_t start = 12 + 16 * tables.size();
  for (const auto& [name, bytes] : tables) {
    directory += name;
    put(directory, 0, 4);
    put(directory, start + body.size(), 4);
    put(directory, bytes.size(), 4);
    body += bytes;
    body.append((4 - body.size() % 4) % 4, '\0');
  }
  return directory + body;
}

std::vector<TinyGlyph> boxes_from(char32_t first, int count) {
  std::vector<TinyGlyph> glyphs;
  for (int i = 0; i < count; ++i) {
    const auto side = static_cast<int16_t>(300 + i % 500);
    glyphs.push_back({first + static_cast<char32_t>(i), {{0, 0, side, 700}}});
  }
  return glyphs;
}

}  // namespace tandem::test
