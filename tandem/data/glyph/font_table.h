#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::data {

/// One face of a font file; a collection (.ttc) holds several.
struct FontFace {
  std::filesystem::path file;
  int64_t index = 0;

  bool operator==(const FontFace&) const = default;
};

/// A typeface: a character comes from the first of its faces that has it.
struct Font {
  std::string name;
  std::vector<FontFace> faces;
};

/// A font that has a short name here. `files` are names without folder; where a collection has faces for several
/// countries, the index is that of mainland China.
struct KnownFont {
  struct File {
    std::string_view name;
    int64_t index;
  };
  std::string_view name, package;  // package: the Debian one that holds it
  std::vector<File> files;
  bool standard;  // used when no list is given
};

std::span<const KnownFont> known_fonts();

/// Held out for testing when no list is given: a pen-written, a sans-serif and a serif face.
std::span<const std::string_view> standard_test_fonts();

/// "apt-get install ..." for the packages of all standard fonts.
std::string install_hint();

/// The fonts of this machine.
class FontCatalog {
 public:
  /// Looks through `folders` and the folders in them; empty: those of $TANDEM_FONTS (split at ':'), else
  /// /usr/share/fonts, /usr/local/share/fonts, ~/.local/share/fonts. Folders that do not exist are passed over.
  explicit FontCatalog(std::vector<std::filesystem::path> folders);

  /// Standard fonts that are here, in the table's order.
  std::vector<std::string> installed_standard() const;

  /// The font that a setting names: a known name, or a path (anything with a '/'), with `#2` behind it for face 2.
  /// `setting` stands in the error's text. Throws SettingsError (unknown name), DataError (not installed, no such
  /// file).
  Font resolve(const std::string& text, const std::string& setting) const;

 private:
  std::vector<FontFace> find(const KnownFont& font) const;

  std::vector<std::filesystem::path> files_;  // sorted by file name
};

}  // namespace tandem::data
