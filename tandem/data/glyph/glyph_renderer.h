#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/data/glyph/font_table.h"

namespace tandem::data {

/// Raised when the same font and size give other pixels than before: kept drawings are then made anew.
inline constexpr uint32_t kRendererVersion = 1;

/// Drawn characters: image i is pixels[i * size * size ...], 0 paper to 255 ink, rows from the top.
struct GlyphImages {
  std::vector<char32_t> characters;
  std::vector<uint8_t> pixels;
};

/// Draws those of `characters` that the font has and that leave ink, in the given order.
///
/// The outline, unhinted, is scaled to an em of 0.9 * size pixels, made smaller when it does not fit, and its bounding
/// box is put into the image's middle: where a font places its characters in the em does not matter then.
/// Works on `threads` threads. Memory: the images.
/// Throws DataError: not a font, cut short, no outlines, a glyph that cannot be read. Names the file.
GlyphImages render_glyphs(const Font& font, std::span<const char32_t> characters, int64_t size, int threads);

/// FreeType's version, as one number.
uint32_t freetype_version();

}  // namespace tandem::data
