#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::test {

/// A filled rectangle in font units (1000 an em, y upwards).
struct Box {
  int16_t left, bottom, right, top;
};

struct TinyGlyph {
  char32_t character;
  std::vector<Box> boxes;  // none: a glyph without ink
};

/// A TrueType font of rectangles: glyph 0 is empty, the others follow in the order given.
std::string tiny_font(const std::vector<TinyGlyph>& glyphs);

/// One box for each of `count` characters from `first` on.
std::vector<TinyGlyph> boxes_from(char32_t first, int count);

}  // namespace tandem::test
