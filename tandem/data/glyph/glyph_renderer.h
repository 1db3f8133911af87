#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/data/glyph/font_table.h"

namespace tandem::data {

/// Must be raised if the same font and size give other pixels than before, so that cached drawings are made again.
inline constexpr uint32_t kRendererVersion = 1;

/// Drawn characters: image i is pixels[i * size * size ...], 0 paper to 255 ink, rows from the top.
struct GlyphImages {
  std::vector<char32_t> characters;
  std::vector<uint8_t> pixels;
};

/// Draws the `characters` that the font has, in the given order. Leaves out those that come out blank.
///
/// The unhinted outline is scaled to an em of 0.9 * size pixels, and shrunk if it does not fit. Its bounding box is
/// centred in the image, so that it does not matter where a font places its characters in the em.
/// Uses `threads` threads. Memory: the images.
/// Throws DataError (not a font, cut short, no outlines, a glyph that cannot be read), naming the file.
GlyphImages render_glyphs(const Font& font, std::span<const char32_t> characters, int64_t size, int threads);

/// FreeType's version, as one number.
uint32_t freetype_version();

}  // namespace tandem::data
