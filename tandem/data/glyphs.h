#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// Which character is this? A class is a character, a sample is a character as one font draws it.
struct GlyphOptions {
  /// gb2312, uro, all, or how many: the first N characters, in the order of character_set.h, that a training font
  /// draws.
  std::string classes = "gb2312";
  int64_t size = 32;  // pixels a side, 8..256; one channel, 0 paper to 255 ink
  /// Known names (font_table.h), or paths to font files. Empty: held out are those of ukai, zenhei, noto-serif that are
  /// installed; learned from are all other installed standard fonts.
  std::vector<std::string> train_fonts = {}, test_fonts = {};
  std::vector<std::filesystem::path> font_folders = {};  // where known fonts are looked for; empty: the system's
  std::filesystem::path cache_folder = {};               // for drawn glyphs; empty: see default_cache_folder()
};

/// The same options with the lists of fonts filled in where they are empty: what glyphs() would take on this machine.
/// Throws DataError (no fonts).
GlyphOptions with_fonts(GlyphOptions options);

/// Draws what is not in the cache yet, with all cores, and opens the rest. Samples go by class, then by font.
///
/// A class counts when a training font draws it; test fonts may lack some. Fewer classes than a name stands for is no
/// error, fewer than a number is. Memory: 16 bytes a sample; the pixels are mapped from the cache's files.
/// Not collective: each rank may call it; thread-ranks share the pixels.
/// Throws SettingsError (unknown name, size, a font twice), DataError (no fonts, too few characters, a broken file).
Split glyphs(const GlyphOptions& options = {});

/// Characters that nobody learned: the `count` that follow the first `learned` ones in the order of character_set.h and
/// are drawn by the query's font and another. Queries are as the first of test_fonts draws them, the gallery as all
/// other fonts do; the camera is the font's number. Labels count from 0. Memory and errors as glyphs(); DataError when
/// there are fewer.
Retrieval unseen_glyphs(const GlyphOptions& options, int64_t learned, int64_t count);

}  // namespace tandem::data
