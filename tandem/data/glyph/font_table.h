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

/// A typeface: a character is drawn from the first of its faces that has it.
struct Font {
  std::string name;
  std::vector<FontFace> faces;
};

/// A font with a short name. `files` are file names without folder; where a collection has faces for several countries,
/// the index is that of mainland China's face.
struct KnownFont {
  struct File {
    std::string_view name;
    int64_t index;
  };
  std::string_view name, package;  // package: the Debian package that contains it
  std::vector<File> files;
  bool standard;  // used when no list is given
};

std::span<const KnownFont> known_fonts();

/// The fonts held out for testing by default: a pen-written, a sans-serif and a serif face.
std::span<const std::string_view> standard_test_fonts();

/// "apt-get install ..." for the packages of all standard fonts.
std::string install_hint();

/// The fonts of this machine.
class FontCatalog {
 public:
  /// Searches `folders` and all folders below them. If empty, defaults to the folders in $TANDEM_FONTS (separated by
  /// ':'), or else /usr/share/fonts, /usr/local/share/fonts and ~/.local/share/fonts. Folders that do not exist are
  /// ignored.
  explicit FontCatalog(std::vector<std::filesystem::path> folders);

  /// The standard fonts that are installed here, in the table's order.
  std::vector<std::string> installed_standard() const;

  /// The font called `text`: a known name, or a path (anything with a '/'), followed by `#2` for face 2. Error texts
  /// name `setting`. Throws SettingsError (unknown name, bad face number), DataError (not installed, no such file).
  Font resolve(const std::string& text, const std::string& setting) const;

 private:
  std::vector<FontFace> find(const KnownFont& font) const;

  std::vector<std::filesystem::path> files_;  // sorted by file name
};

}  // namespace tandem::data
