#include "tandem/data/glyphs.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/data/glyph/font_table.h"
#include "tests/data/tiny_font.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::TemporaryFolder;
using test::text_of;

constexpr char32_t kRare = 0x4E02;  // in U+4E00-9FA5, not in GB 2312

/// A machine whose fonts are three files of boxes: gkai and microhei to learn from, ukai held out.
class Glyphs : public testing::Test {
 protected:
  void SetUp() override {
    install("gkai00mp.ttf", test::boxes_from(0x4E00, 60));
    install("wqy-microhei.ttc", test::boxes_from(0x4E00, 30));
    install("ukai.ttc", test::boxes_from(0x4E00, 40));
  }
  void install(const std::string& file, const std::vector<test::TinyGlyph>& glyphs) {
    test::spill(fonts_ / file, test::tiny_font(glyphs));
  }
  GlyphOptions options(const std::string& classes = "uro") {
    return {.classes = classes, .size = 16, .font_folders = {fonts_.path()}, .cache_folder = cache_.path()};
  }
  std::vector<std::string> class_names(const std::string& classes) {
    const auto split = glyphs(options(classes));
    std::vector<std::string> names;
    for (int64_t i = 0; i < split.train->num_classes(); ++i) names.push_back(split.train->class_name(i));
    return names;
  }
  TemporaryFolder fonts_, cache_;
};

TEST_F(Glyphs, EverySampleOfEveryFontIsThereOnce) {
  const auto split = glyphs(options());
  EXPECT_EQ(split.train->num_classes(), 60);
  EXPECT_EQ(split.test->num_classes(), 60);
  EXPECT_EQ(split.train->size(), 90);
  EXPECT_EQ(split.test->size(), 40);
  EXPECT_EQ(split.train->image_shape(), (std::array<int64_t, 3>{1, 16, 16}));
  std::vector<int> seen(60, 0);
  std::vector<uint8_t> pixels(256);
  int64_t last = 0;
  for (int64_t i = 0; i < split.train->size(); ++i) {
    const int64_t label = split.train->read(i, pixels);
    EXPECT_GE(label, last);
    last = label;
    ++seen[static_cast<size_t>(label)];
    EXPECT_GT(*std::ranges::max_element(pixels), 200);
  }
  EXPECT_EQ(std::ranges::count(seen, 2), 30);
  EXPECT_EQ(std::ranges::count(seen, 1), 30);
}

TEST_F(Glyphs, SummaryIsOneLine) {
  const auto split = glyphs(options());
  EXPECT_EQ(split.summary, "glyphs   60 classes · 90 images from 2 fonts · held out: ukai");
  EXPECT_EQ(split.train->describe(), split.summary);
  EXPECT_EQ(split.test->describe(), "glyphs   60 classes · 40 images from 1 font: ukai");
}

TEST_F(Glyphs, TestLabelsNameTheSameCharacters) {
  // gkai and ukai draw the same box for a character, so equal pixels must mean equal labels.
  auto settings = options();
  settings.train_fonts = {"gkai"};
  const auto split = glyphs(settings);
  std::vector<uint8_t> learned(256), tested(256);
  for (int64_t i = 0; i < split.test->size(); ++i) {
    const int64_t label = split.test->read(i, tested);
    EXPECT_EQ(split.train->read(label, learned), label);  // one font: sample i is class i
    EXPECT_EQ(learned, tested);
  }
}

TEST_F(Glyphs, ASmallerNumberIsASubsetInTheSameOrder) {
  const auto forty = class_names("40"), all = class_names("uro");
  ASSERT_EQ(forty.size(), 40U);
  EXPECT_TRUE(std::equal(forty.begin(), forty.end(), all.begin()));
}

TEST_F(Glyphs, EverydayCharactersComeFirst) {
  const auto everyday = class_names("gb2312"), all = class_names("uro");
  EXPECT_LT(everyday.size(), all.size());
  EXPECT_TRUE(std::equal(everyday.begin(), everyday.end(), all.begin()));
  EXPECT_EQ(std::ranges::count(everyday, "\u4E02 U+4E02"), 0);
  EXPECT_EQ(std::ranges::count(all, "\u4E02 U+4E02"), 1);
  EXPECT_TRUE(std::is_sorted(all.begin() + static_cast<std::ptrdiff_t>(everyday.size()), all.end()));
}

TEST_F(Glyphs, ExtensionsFollow) {
  auto glyphs_of_font = test::boxes_from(0x4E00, 20);
  glyphs_of_font.push_back({0x20000, {{0, 0, 500, 500}}});
  glyphs_of_font.push_back({0x3400, {{0, 0, 500, 500}}});
  install("gkai00mp.ttf", glyphs_of_font);
  install("wqy-microhei.ttc", test::boxes_from(0x4E00, 20));
  const auto all = class_names("all");
  ASSERT_EQ(all.size(), 22U);
  EXPECT_EQ(all[20], "\u3400 U+3400");
  EXPECT_EQ(all[21], "\U00020000 U+20000");
  EXPECT_EQ(class_names("22"), all);
}

TEST_F(Glyphs, ACharacterWithoutTrainingImageIsNoClass) {
  auto blank = test::boxes_from(0x4E00, 20);
  blank[kRare - 0x4E00].boxes.clear();  // the fonts have it, but as a blank
  install("gkai00mp.ttf", blank);
  install("wqy-microhei.ttc", blank);
  EXPECT_EQ(class_names("uro").size(), 19U);
}

TEST_F(Glyphs, UserFontsAreNamedByPath) {
  test::spill(fonts_ / "mine.ttf", test::tiny_font(test::boxes_from(0x4E00, 12)));
  auto settings = options();
  settings.train_fonts = {(fonts_ / "mine.ttf").string()};
  settings.test_fonts = {"gkai"};
  EXPECT_EQ(glyphs(settings).summary, "glyphs   12 classes · 12 images from 1 font · held out: gkai");
}

TEST_F(Glyphs, ReadChecksWhatItIsGiven) {
  const auto split = glyphs(options());
  std::vector<uint8_t> pixels(256);
  EXPECT_THROW(split.train->read(90, pixels), c10::IndexError);
  EXPECT_THROW(split.train->read(-1, pixels), c10::IndexError);
  EXPECT_THROW(split.train->read(0, std::span(pixels).first(255)), c10::ValueError);
  EXPECT_THROW(split.train->class_name(60), c10::IndexError);
}

TEST_F(Glyphs, WrongSettingsAreTold) {
  const auto told = [&](auto change) {
    auto settings = options();
    change(settings);
    return text_of<SettingsError>([&] { glyphs(settings); });
  };
  EXPECT_EQ(told([](auto& o) { o.size = 7; }), "size is 7, wanted 8..256");
  EXPECT_EQ(told([](auto& o) { o.size = 257; }), "size is 257, wanted 8..256");
  for (const std::string classes : {"9", "-5", "12x", "", "gb", "99999999999999999999"}) {
    EXPECT_EQ(told([&](auto& o) { o.classes = classes; }),
              "classes is '" + classes + "', wanted gb2312, uro, all or a number from 10 up");
  }
  EXPECT_EQ(told([](auto& o) {
              o.train_fonts = {"gkai", "ukai"}, o.test_fonts = {"ukai"};
            }),
            "test_fonts names ukai, which train_fonts names too: "
            "a held-out font must not be learned from, drop it from one of the lists");
  EXPECT_EQ(told([](auto& o) {
              o.train_fonts = {"gkai", "gkai"};
            }),
            "train_fonts names gkai twice, wanted each font once");
  EXPECT_TRUE(told([](auto& o) { o.test_fonts = {"gkaj"}; }).ends_with("did you mean gkai?"));
}

TEST_F(Glyphs, MoreClassesThanTheFontsHold) {
  EXPECT_EQ(text_of<DataError>([&] { glyphs(options("61")); }),
            "classes is 61, but the 2 training fonts hold 60 characters: lower it, or add training fonts");
  auto settings = options("2000");
  settings.train_fonts = {"gkai"};
  EXPECT_EQ(text_of<DataError>([&] { glyphs(settings); }),
            "classes is 2,000, but the 1 training font holds 60 characters: lower it, or add training fonts");
  install("gkai00mp.ttf", test::boxes_from('A', 26));
  settings.classes = "gb2312";
  EXPECT_EQ(text_of<DataError>([&] { glyphs(settings); }),
            "classes is gb2312, but the 1 training font holds 0 characters: lower it, or add training fonts");
}

TEST_F(Glyphs, HeldOutFontsThatDrawNoClass) {
  install("ukai.ttc", test::boxes_from('A', 26));
  EXPECT_EQ(text_of<DataError>([&] { glyphs(options()); }),
            "the fonts held out (ukai) draw none of the 60 classes: name others in test_fonts");
}

TEST_F(Glyphs, MissingFontsComeWithTheLineThatInstallsThem) {
  const auto told = [&] { return text_of<DataError>([&] { glyphs(options()); }); };
  std::filesystem::remove(fonts_ / "ukai.ttc");
  EXPECT_EQ(told(),
            "test_fonts is empty and none of ukai, zenhei, noto-serif is installed and free to be held out: "
            "name others, or " +
                install_hint());
  std::filesystem::remove(fonts_ / "gkai00mp.ttf");
  std::filesystem::remove(fonts_ / "wqy-microhei.ttc");
  EXPECT_EQ(told(), "no known font is installed, wanted one to learn and one to test: " + install_hint());
  install("ukai.ttc", test::boxes_from(0x4E00, 40));
  EXPECT_EQ(told(), "train_fonts is empty and no known font is installed beside those held out: " + install_hint());
}

TEST_F(Glyphs, AFontFileCutShortIsNamed) {
  const auto file = fonts_ / "gkai00mp.ttf";
  test::spill(file, test::slurp(file).substr(0, 700));
  const auto text = text_of<DataError>([&] { glyphs(options()); });
  EXPECT_TRUE(text.starts_with("font file '" + file.string() + "' is cut short (table '")) << text;
}

/// With the real fonts of this machine: the counts that the documentation states.
TEST(GlyphsOfThisMachine, StandardFontsDrawGb2312) {
  const auto installed = FontCatalog({}).installed_standard();
  if (installed.size() < 16)
    GTEST_SKIP() << installed.size() << " of 16 standard fonts are installed: " << install_hint();
  const TemporaryFolder cache;
  const auto split = glyphs({.cache_folder = cache.path()});
  EXPECT_EQ(split.train->num_classes(), 3755);
  EXPECT_EQ(split.train->size(), 42856);
  EXPECT_EQ(split.test->size(), 11265);
  EXPECT_EQ(split.summary, "glyphs   3,755 classes · 42,856 images from 13 fonts · held out: ukai, zenhei, noto-serif");
  // Each image is centred: its ink's box is as far from one side as from the other, but for rounding.
  std::vector<uint8_t> pixels(1024);
  for (int64_t i = 0; i < split.train->size(); i += 97) {
    split.train->read(i, pixels);
    int64_t left = 32, right = -1, top = 32, bottom = -1;
    for (int64_t at = 0; at < 1024; ++at) {
      if (pixels[static_cast<size_t>(at)] == 0) continue;
      left = std::min(left, at % 32), right = std::max(right, at % 32);
      top = std::min(top, at / 32), bottom = std::max(bottom, at / 32);
    }
    EXPECT_LE(std::abs(left - (31 - right)), 1) << i;
    EXPECT_LE(std::abs(top - (31 - bottom)), 1) << i;
  }
}

}  // namespace
}  // namespace tandem::data
