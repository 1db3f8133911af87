#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// Options of the task "which character is this?": a class is a character, a sample is a character drawn by one font.
struct GlyphOptions {
  /// gb2312, uro, all, or a number from 10 up: the first N characters, in the order of character_set.h, that a training
  /// font draws.
  std::string classes = "gb2312";
  int64_t size = 32;  // pixels a side, 8..256; one channel, 0 paper to 255 ink
  /// Known names (font_table.h), or paths to font files. An empty test_fonts defaults to those of ukai, zenhei,
  /// noto-serif that are installed; an empty train_fonts to all other installed standard fonts.
  std::vector<std::string> train_fonts = {}, test_fonts = {};
  std::vector<std::filesystem::path> font_folders = {};  // searched for known fonts; empty: the system's
  std::filesystem::path cache_folder = {};               // for drawn glyphs; empty: see default_cache_folder()
};

/// Returns `options` with empty lists of fonts replaced by the fonts that glyphs() would use on this machine. Throws
/// DataError (no fonts).
GlyphOptions with_fonts(GlyphOptions options);

/// Draws the glyphs that are not cached yet, with all cores, and opens the others. Samples are sorted by class, then by
/// font.
///
/// A character is a class if a training font draws it; test fonts may lack some. If `classes` is a name, the fonts may
/// draw fewer characters than it stands for, but at least 10; if it is a number, they must draw that many. Memory: 16
/// bytes a sample; the pixels are mapped from the cache's files.
/// Not collective: each rank may call it; thread-ranks share the pixels.
/// Throws SettingsError (unknown name, size, a font twice), DataError (no fonts, too few characters, a broken file).
Split glyphs(const GlyphOptions& options = {});

/// A retrieval task on characters that are not trained on: the `count` characters that follow the first `learned` ones
/// in the order of character_set.h and that both the query font and another font draw. The query font is the first of
/// test_fonts; all other fonts draw the gallery. An image's camera is the number of its font. Labels count from 0.
/// Memory and errors as for glyphs(); also throws DataError if there are fewer characters.
Retrieval unseen_glyphs(const GlyphOptions& options, int64_t learned, int64_t count);

}  // namespace tandem::data
