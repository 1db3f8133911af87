#include "tandem/data/glyph/font_table.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tandem/base/env.h"
#include "tandem/base/error.h"
#include "tandem/base/suggest.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

const std::vector<KnownFont> kFonts = {
    {"noto-sans", "fonts-noto-cjk", {{"NotoSansCJK-Regular.ttc", 2}}, true},
    {"noto-serif", "fonts-noto-cjk", {{"NotoSerifCJK-Regular.ttc", 2}}, true},
    {"zenhei", "fonts-wqy-zenhei", {{"wqy-zenhei.ttc", 0}}, true},
    {"microhei", "fonts-wqy-microhei", {{"wqy-microhei.ttc", 0}}, true},
    {"ukai", "fonts-arphic-ukai", {{"ukai.ttc", 0}}, true},
    {"uming", "fonts-arphic-uming", {{"uming.ttc", 0}}, true},
    {"gkai", "fonts-arphic-gkai00mp", {{"gkai00mp.ttf", 0}}, true},
    {"bkai", "fonts-arphic-bkai00mp", {{"bkai00mp.ttf", 0}}, true},
    {"gbsn", "fonts-arphic-gbsn00lp", {{"gbsn00lp.ttf", 0}}, true},
    {"bsmi", "fonts-arphic-bsmi00lp", {{"bsmi00lp.ttf", 0}}, true},
    {"babelstone", "fonts-babelstone-han", {{"BabelStoneHan.ttf", 0}}, true},
    {"droid", "fonts-droid-fallback", {{"DroidSansFallbackFull.ttf", 0}}, true},
    {"ipa-gothic", "fonts-ipafont-gothic", {{"ipag.ttf", 0}}, true},
    {"ipa-mincho", "fonts-ipafont-mincho", {{"ipam.ttf", 0}}, true},
    {"cwtex-kai", "fonts-cwtex-kai", {{"cwkai.ttf", 0}}, true},
    {"hanazono", "fonts-hanazono", {{"HanaMinA.ttf", 0}, {"HanaMinB.ttf", 0}}, true},
    // Used by name only: the same typeface as a standard font, or not needed for the standard set.
    {"noto-sans-bold", "fonts-noto-cjk", {{"NotoSansCJK-Bold.ttc", 2}}, false},
    {"noto-serif-bold", "fonts-noto-cjk", {{"NotoSerifCJK-Bold.ttc", 2}}, false},
    {"cwtex-ming", "fonts-cwtex-ming", {{"cwming.ttf", 0}}, false},
    {"cwtex-yen", "fonts-cwtex-yen", {{"cwyen.ttf", 0}}, false},
    {"cwtex-hei", "fonts-cwtex-heib", {{"cwheib.ttf", 0}}, false},
};

constexpr std::array<std::string_view, 3> kTestFonts = {"ukai", "zenhei", "noto-serif"};

[[noreturn]] void fail_unknown(const std::string& text, const std::string& setting) {
  const auto nearest =
      std::ranges::min_element(kFonts, {}, [&](const KnownFont& font) { return edit_distance(text, font.name); });
  std::string names;
  for (const auto& font : kFonts) names += (names.empty() ? "" : ", ") + std::string(font.name);
  throw SettingsError(setting + " is '" + text + "', wanted one of " + names + ", or a path to a font file",
                      "did you mean " + std::string(nearest->name) + "?");
}

Font font_of_path(const std::string& text, const std::string& setting) {
  const auto hash = text.rfind('#');
  FontFace face{text.substr(0, hash), 0};
  if (hash != std::string::npos) {
    const char *begin = text.data() + hash + 1, *end = text.data() + text.size();
    const auto [stop, fault] = std::from_chars(begin, end, face.index);
    if (fault != std::errc() || stop != end || face.index < 0 || face.index > 0xFFFF) {
      throw SettingsError(setting + " is '" + text + "', wanted a face number after '#', as in fonts/han.ttc#2");
    }
  }
  std::error_code ignored;
  if (!fs::is_regular_file(face.file, ignored)) {
    throw DataError(setting + " is '" + text + "', which is no file", "name a font file or a known font");
  }
  std::string name = face.file.stem().string();
  if (face.index > 0) name.append("#").append(std::to_string(face.index));
  return {std::move(name), {std::move(face)}};
}

std::vector<fs::path> default_folders() {
  std::vector<fs::path> folders;
  if (const auto list = env::get("TANDEM_FONTS")) {
    for (size_t begin = 0; begin <= list->size();) {
      const size_t end = std::min(list->find(':', begin), list->size());
      if (end > begin) folders.emplace_back(list->substr(begin, end - begin));
      begin = end + 1;
    }
    return folders;
  }
  folders = {"/usr/share/fonts", "/usr/local/share/fonts"};
  if (const auto home = env::get("HOME")) folders.push_back(fs::path(*home) / ".local/share/fonts");
  return folders;
}

void add_files(const fs::path& folder, std::vector<fs::path>& files) {
  std::error_code fault;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
  }
}

}  // namespace

std::span<const KnownFont> known_fonts() { return kFonts; }
std::span<const std::string_view> standard_test_fonts() { return kTestFonts; }

std::string install_hint() {
  std::string line = "apt-get install --no-install-recommends";
  std::string_view last;
  for (const auto& font : kFonts) {
    if (font.standard && font.package != last) line.append(" ").append(font.package);
    last = font.package;
  }
  return line;
}

FontCatalog::FontCatalog(std::vector<fs::path> folders) {
  if (folders.empty()) folders = default_folders();
  for (const auto& folder : folders) add_files(folder, files_);
  std::ranges::sort(files_, {}, [](const fs::path& file) { return std::pair(file.filename(), file); });
}

std::vector<FontFace> FontCatalog::find(const KnownFont& font) const {
  std::vector<FontFace> faces;
  for (const auto& wanted : font.files) {
    const fs::path name(wanted.name);
    const auto at = std::ranges::lower_bound(files_, name, {}, [](const fs::path& file) { return file.filename(); });
    if (at == files_.end() || at->filename() != name) return {};
    faces.push_back({*at, wanted.index});
  }
  return faces;
}

std::vector<std::string> FontCatalog::installed_standard() const {
  std::vector<std::string> names;
  for (const auto& font : kFonts) {
    if (font.standard && !find(font).empty()) names.emplace_back(font.name);
  }
  return names;
}

Font FontCatalog::resolve(const std::string& text, const std::string& setting) const {
  if (text.find('/') != std::string::npos) return font_of_path(text, setting);
  const auto known = std::ranges::find(kFonts, text, &KnownFont::name);
  if (known == kFonts.end()) fail_unknown(text, setting);
  auto faces = find(*known);
  if (faces.empty()) {
    throw DataError(setting + " is " + text + ", which is not installed",
                    "apt-get install --no-install-recommends " + std::string(known->package));
  }
  return {text, std::move(faces)};
}

}  // namespace tandem::data
