#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "tandem/data/glyph/character_set.h"
#include "tandem/data/glyph/font_table.h"
#include "tandem/data/glyph/sheet_file.h"
#include "tandem/storage/mapped_file.h"

namespace tandem::data {

/// The images of one tier of characters in one font. Immutable; may be read from any thread.
class GlyphSheet {
 public:
  explicit GlyphSheet(GlyphImages images);
  GlyphSheet(storage::MappedFile file, SheetView view);

  std::span<const char32_t> characters() const { return view_.characters; }
  const uint8_t* pixels() const { return view_.pixels; }  // size * size bytes a character, in the same order

 private:
  GlyphImages images_;
  storage::MappedFile file_;
  SheetView view_;
};

/// $TANDEM_CACHE, else $XDG_CACHE_HOME/tandem, else ~/.cache/tandem; nullopt if none of these variables is set.
std::optional<std::filesystem::path> default_cache_folder();

/// Returns the sheet from memory if this process has it, else from the cache folder; else draws it and stores it there.
///
/// Threads of a process wait for each other and share one sheet; processes wait for each other through a lock on the
/// folder. A damaged file is drawn again. If the folder cannot be written, the sheet is not stored and one warning is
/// logged.
/// Throws what render_glyphs() throws.
std::shared_ptr<const GlyphSheet> load_sheet(const Font& font, Tier tier, int64_t size,
                                             const std::optional<std::filesystem::path>& cache_folder);

}  // namespace tandem::data
