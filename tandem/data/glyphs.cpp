#include "tandem/data/glyphs.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/data/glyph/character_set.h"
#include "tandem/data/glyph/font_table.h"
#include "tandem/data/glyph/glyph_sheet.h"

namespace tandem::data {
namespace {

constexpr int64_t kSmallest = 8, kLargest = 256, kFewestClasses = 10;

using Sheets = std::vector<std::shared_ptr<const GlyphSheet>>;  // fonts in order, the tiers of each in order
using Classes = std::vector<char32_t>;                          // label -> character

/// The last tier to use, and the number of characters.
struct Request {
  Tier last_tier;
  std::optional<int64_t> count;  // nullopt: all
};

Request parse_classes(const std::string& text) {
  if (text == "gb2312") return {Tier::gb2312, std::nullopt};
  if (text == "uro") return {Tier::uro, std::nullopt};
  if (text == "all") return {Tier::extension, std::nullopt};
  int64_t count = 0;
  const auto [stop, fault] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (fault != std::errc() || stop != text.data() + text.size() || count < kFewestClasses) {
    throw SettingsError("classes is '" + text + "', wanted gb2312, uro, all or a number from 10 up");
  }
  return {Tier::extension, count};
}

struct Fonts {
  std::vector<Font> train, test;
};

std::vector<Font> resolve_all(const FontCatalog& catalog, const std::vector<std::string>& names, const char* setting) {
  std::vector<Font> fonts;
  for (size_t i = 0; i < names.size(); ++i) {
    fonts.push_back(catalog.resolve(names[i], std::string(setting) + '[' + std::to_string(i) + ']'));
    for (size_t j = 0; j < i; ++j) {
      if (fonts[j].faces == fonts[i].faces) {
        throw SettingsError(setting + std::string(" names ") + names[i] + " twice, wanted each font once");
      }
    }
  }
  return fonts;
}

void check_apart(const Fonts& fonts) {
  for (const auto& test : fonts.test) {
    for (const auto& train : fonts.train) {
      if (test.faces == train.faces) {
        throw SettingsError("test_fonts names " + test.name + ", which train_fonts names too",
                            "a held-out font must not be learned from, drop it from one of the lists");
      }
    }
  }
}

using Names = std::vector<std::string>;

bool contains(const Names& names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

Names default_test_fonts(const Names& installed, const Names& taken) {
  Names names;
  for (const auto name : standard_test_fonts()) {
    if (contains(installed, name) && !contains(taken, name)) names.emplace_back(name);
  }
  if (!names.empty()) return names;
  throw DataError("test_fonts is empty and none of ukai, zenhei, noto-serif is installed and free to be held out",
                  "name others, or " + install_hint());
}

Names default_train_fonts(const Names& installed, const Names& held_out) {
  Names names;
  std::ranges::copy_if(installed, std::back_inserter(names),
                       [&](const auto& name) { return !contains(held_out, name); });
  if (!names.empty()) return names;
  throw DataError("train_fonts is empty and no known font is installed beside those held out", install_hint());
}

void fill_fonts(GlyphOptions& options, const FontCatalog& catalog) {
  auto &train = options.train_fonts, &test = options.test_fonts;
  if (!train.empty() && !test.empty()) return;
  const auto installed = catalog.installed_standard();
  if (installed.empty())
    throw DataError("no known font is installed, wanted one to learn and one to test", install_hint());
  if (test.empty()) test = default_test_fonts(installed, train);
  if (train.empty()) train = default_train_fonts(installed, test);
}

Fonts choose_fonts(GlyphOptions options) {
  const FontCatalog catalog(options.font_folders);
  fill_fonts(options, catalog);
  Fonts fonts{resolve_all(catalog, options.train_fonts, "train_fonts"),
              resolve_all(catalog, options.test_fonts, "test_fonts")};
  check_apart(fonts);
  return fonts;
}

class GlyphLoader {
 public:
  explicit GlyphLoader(const GlyphOptions& options) : size_(options.size) {
    cache_ = options.cache_folder.empty() ? default_cache_folder() : options.cache_folder;
  }

  Sheets load(const std::vector<Font>& fonts, Tier tier) const {
    Sheets sheets;
    for (const auto& font : fonts) sheets.push_back(load_sheet(font, tier, size_, cache_));
    return sheets;
  }

 private:
  int64_t size_;
  std::optional<std::filesystem::path> cache_;
};

/// Adds the tier's characters that at least one of `sheets` holds, in the tier's order.
void add_classes(Classes& classes, Tier tier, const Sheets& sheets) {
  std::unordered_map<char32_t, bool> drawn;
  for (const auto& sheet : sheets) {
    for (const char32_t c : sheet->characters()) drawn.emplace(c, true);
  }
  for (const char32_t c : characters(tier)) {
    if (drawn.contains(c)) classes.push_back(c);
  }
}

void check_enough(const Classes& classes, const Request& request, const std::string& text, size_t num_fonts) {
  const auto held = static_cast<int64_t>(classes.size());
  if (held >= request.count.value_or(kFewestClasses)) return;
  const std::string wanted = request.count ? format_count(*request.count) : text;
  throw DataError("classes is " + wanted + ", but the " + std::to_string(num_fonts) + " training " +
                      (num_fonts == 1 ? "font holds " : "fonts hold ") + format_count(held) + " characters",
                  "lower it, or add training fonts");
}

struct Sample {
  const uint8_t* pixels;
  int32_t label, font;
};

class GlyphDataset final : public Dataset {
 public:
  /// `sheets`: `num_fonts` sheets of the first tier, then of the second, and so on.
  GlyphDataset(std::shared_ptr<const Classes> classes, Sheets sheets, int64_t size, size_t num_fonts)
      : classes_(std::move(classes)), sheets_(std::move(sheets)), size_(size) {
    std::unordered_map<char32_t, int32_t> labels;
    for (const char32_t c : *classes_) labels.emplace(c, static_cast<int32_t>(labels.size()));
    for (size_t i = 0; i < sheets_.size(); ++i) add_sheet(*sheets_[i], static_cast<int32_t>(i % num_fonts), labels);
    std::ranges::sort(samples_, {}, [](const Sample& sample) { return std::pair(sample.label, sample.font); });
  }

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  int64_t num_classes() const override { return static_cast<int64_t>(classes_->size()); }
  std::array<int64_t, 3> image_shape() const override { return {1, size_, size_}; }

  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    const Sample& sample = samples_[static_cast<size_t>(index)];
    std::memcpy(pixels.data(), sample.pixels, pixels.size());
    return sample.label;
  }

  std::string class_name(int64_t label) const override {
    TORCH_CHECK_INDEX(label >= 0 && label < num_classes(), "class is ", label, ", wanted 0..", num_classes() - 1);
    return character_name((*classes_)[static_cast<size_t>(label)]);
  }

  int32_t label_of(int64_t index) const { return samples_[static_cast<size_t>(index)].label; }
  int32_t font_of(int64_t index) const { return samples_[static_cast<size_t>(index)].font; }

  std::string describe() const override { return description_; }
  void set_description(std::string text) { description_ = std::move(text); }

 private:
  void add_sheet(const GlyphSheet& sheet, int32_t font, const std::unordered_map<char32_t, int32_t>& labels) {
    const auto characters = sheet.characters();
    for (size_t i = 0; i < characters.size(); ++i) {
      const auto label = labels.find(characters[i]);
      if (label == labels.end()) continue;
      samples_.push_back({sheet.pixels() + i * static_cast<size_t>(size_ * size_), label->second, font});
    }
  }

  std::shared_ptr<const Classes> classes_;
  Sheets sheets_;
  int64_t size_;
  std::vector<Sample> samples_;
  std::string description_;
};

std::string counts(const Dataset& dataset, size_t num_fonts) {
  return "glyphs   " + format_count(dataset.num_classes()) + " classes · " + format_count(dataset.size()) +
         " images from " + std::to_string(num_fonts) + (num_fonts == 1 ? " font" : " fonts");
}

std::string joined_names(const std::vector<Font>& fonts) {
  std::string text;
  for (const auto& font : fonts) text += (text.empty() ? "" : ", ") + font.name;
  return text;
}

void append(Sheets& all, const Sheets& more) { all.insert(all.end(), more.begin(), more.end()); }

}  // namespace

GlyphOptions with_fonts(GlyphOptions options) {
  fill_fonts(options, FontCatalog(options.font_folders));
  return options;
}

Split glyphs(const GlyphOptions& options) {
  if (options.size < kSmallest || options.size > kLargest) {
    throw SettingsError("size is " + std::to_string(options.size) + ", wanted 8..256");
  }
  const auto request = parse_classes(options.classes);
  const auto fonts = choose_fonts(options);
  const GlyphLoader loader(options);
  const auto enough = static_cast<size_t>(request.count.value_or(std::numeric_limits<int64_t>::max()));

  auto classes = std::make_shared<Classes>();
  Sheets train_sheets, test_sheets;
  for (const Tier tier : kTiers) {
    if (tier > request.last_tier || classes->size() >= enough) break;
    const auto sheets = loader.load(fonts.train, tier);
    add_classes(*classes, tier, sheets);
    append(train_sheets, sheets);
    append(test_sheets, loader.load(fonts.test, tier));
  }
  check_enough(*classes, request, options.classes, fonts.train.size());
  classes->resize(std::min(classes->size(), enough));

  auto train = std::make_unique<GlyphDataset>(classes, std::move(train_sheets), options.size, fonts.train.size());
  auto test = std::make_unique<GlyphDataset>(classes, std::move(test_sheets), options.size, fonts.test.size());
  if (test->size() == 0) {
    throw DataError("the fonts held out (" + joined_names(fonts.test) + ") draw none of the " +
                        format_count(train->num_classes()) + " classes",
                    "name others in test_fonts");
  }
  train->set_description(counts(*train, fonts.train.size()) + " · held out: " + joined_names(fonts.test));
  test->set_description(counts(*test, fonts.test.size()) + ": " + joined_names(fonts.test));
  std::string summary = train->describe();
  return {std::move(train), std::move(test), std::move(summary)};
}

namespace {

/// Adds the tier's characters that the query font and some gallery font draw and that are not in `learned`.
void add_searched(Classes& found, Tier tier, const GlyphSheet& query, const Sheets& gallery,
                  const std::unordered_set<char32_t>& learned) {
  std::unordered_set<char32_t> in_query(query.characters().begin(), query.characters().end()), in_gallery;
  for (const auto& sheet : gallery) in_gallery.insert(sheet->characters().begin(), sheet->characters().end());
  for (const char32_t c : characters(tier)) {
    if (in_query.contains(c) && in_gallery.contains(c) && !learned.contains(c)) found.push_back(c);
  }
}

/// `first_camera`: the number of the set's first font.
RetrievalSet retrieval_set(std::unique_ptr<GlyphDataset> images, int64_t first_camera, const std::string& what) {
  RetrievalSet set;
  for (int64_t i = 0; i < images->size(); ++i) {
    set.identity.push_back(images->label_of(i));
    set.camera.push_back(first_camera + images->font_of(i));
  }
  images->set_description(what);
  set.images = std::move(images);
  return set;
}

}  // namespace

Retrieval unseen_glyphs(const GlyphOptions& options, int64_t learned, int64_t count) {
  auto fonts = choose_fonts(options);
  const std::vector<Font> query_font = {fonts.test.front()};
  auto others = fonts.train;
  others.insert(others.end(), fonts.test.begin() + 1, fonts.test.end());
  const GlyphLoader loader(options);
  Classes known;
  auto unseen = std::make_shared<Classes>();
  Sheets query_sheets, gallery_sheets;
  for (const Tier tier : kTiers) {
    if (static_cast<int64_t>(unseen->size()) >= count) break;
    add_classes(known, tier, loader.load(fonts.train, tier));
    const auto in_order = std::min<size_t>(known.size(), static_cast<size_t>(learned));
    const std::unordered_set<char32_t> taken(known.begin(), known.begin() + static_cast<int64_t>(in_order));
    append(query_sheets, loader.load(query_font, tier));
    const auto of_tier = loader.load(others, tier);
    append(gallery_sheets, of_tier);
    if (static_cast<int64_t>(known.size()) > learned) add_searched(*unseen, tier, *query_sheets.back(), of_tier, taken);
  }
  if (static_cast<int64_t>(unseen->size()) < count) {
    throw DataError("unseen is " + std::to_string(count) + ", but " + query_font[0].name +
                        " and the other fonts draw " + format_count(static_cast<int64_t>(unseen->size())) +
                        " characters beyond the " + format_count(learned) + " that are learned",
                    "lower it, or learn fewer");
  }
  unseen->resize(static_cast<size_t>(count));
  Retrieval retrieval;
  retrieval.query = retrieval_set(std::make_unique<GlyphDataset>(unseen, std::move(query_sheets), options.size, 1), 0,
                                  "unseen characters, " + query_font[0].name);
  retrieval.gallery =
      retrieval_set(std::make_unique<GlyphDataset>(unseen, std::move(gallery_sheets), options.size, others.size()), 1,
                    "unseen characters, the other fonts");
  retrieval.what = "unseen characters: " + format_count(count) + ", query " + query_font[0].name + ", gallery " +
                   format_count(retrieval.gallery.images->size()) + " images of " + std::to_string(others.size()) +
                   " fonts";
  return retrieval;
}

}  // namespace tandem::data
