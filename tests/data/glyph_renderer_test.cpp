#include "tandem/data/glyph/glyph_renderer.h"

#include <gtest/gtest.h>

#include "tests/data/tiny_font.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::TemporaryFolder;
using test::text_of;

class GlyphRenderer : public testing::Test {
 protected:
  Font font(const std::vector<test::TinyGlyph>& glyphs, const std::string& name = "tiny") {
    test::spill(folder_ / (name + ".ttf"), test::tiny_font(glyphs));
    return {name, {{folder_ / (name + ".ttf"), 0}}};
  }
  GlyphImages draw(const Font& font, std::vector<char32_t> characters, int64_t size, int threads = 1) {
    return render_glyphs(font, characters, size, threads);
  }
  TemporaryFolder folder_;
};

/// First and last row and column that hold ink.
struct Extent {
  int64_t top = 1 << 20, bottom = -1, left = 1 << 20, right = -1;
  bool operator==(const Extent&) const = default;
};

Extent ink_extent(const uint8_t* pixels, int64_t size) {
  Extent extent;
  for (int64_t y = 0; y < size; ++y) {
    for (int64_t x = 0; x < size; ++x) {
      if (pixels[y * size + x] < 128) continue;
      extent = {std::min(extent.top, y), std::max(extent.bottom, y), std::min(extent.left, x),
                std::max(extent.right, x)};
    }
  }
  return extent;
}

TEST_F(GlyphRenderer, BoxesKeepTheirSizeAndMoveToTheMiddle) {
  // em = 36 of 40 pixels; 500 units = 18 pixels, 250 = 9; wherever the box lies in the em.
  const auto images = draw(font({{'a', {{0, 0, 500, 500}}}, {'b', {{400, -200, 900, 50}}}}), {'a', 'b'}, 40);
  ASSERT_EQ(images.characters, (std::vector<char32_t>{'a', 'b'}));
  EXPECT_EQ(ink_extent(images.pixels.data(), 40), (Extent{11, 28, 11, 28}));
  EXPECT_EQ(ink_extent(images.pixels.data() + 1600, 40), (Extent{15, 24, 11, 28}));
}

TEST_F(GlyphRenderer, StandsUpright) {
  // A gamma: bar on top, stem at the left.
  const auto images = draw(font({{'g', {{0, 700, 800, 800}, {0, 0, 100, 700}}}}), {'g'}, 32);
  const uint8_t* pixels = images.pixels.data();
  const auto [top, bottom, left, right] = ink_extent(pixels, 32);
  EXPECT_GT(pixels[(top + 1) * 32 + right - 1], 128);
  EXPECT_GT(pixels[(bottom - 1) * 32 + left + 1], 128);
  EXPECT_EQ(pixels[(bottom - 1) * 32 + right - 1], 0);
}

TEST_F(GlyphRenderer, WhatIsTooLargeShrinksToFit) {
  const auto images = draw(font({{'w', {{-1000, 0, 3000, 1000}}}}), {'w'}, 32);
  const auto [top, bottom, left, right] = ink_extent(images.pixels.data(), 32);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(right, 31);
  EXPECT_EQ(bottom - top + 1, 8);
}

TEST_F(GlyphRenderer, LeavesOutWhatIsMissingOrBlank) {
  const auto images = draw(font({{'a', {{0, 0, 500, 500}}}, {'b', {}}}), {'c', 'b', 'a'}, 16);
  EXPECT_EQ(images.characters, (std::vector<char32_t>{'a'}));
  EXPECT_EQ(images.pixels.size(), 256U);
}

TEST_F(GlyphRenderer, SecondFaceFillsWhatTheFirstLacks) {
  auto both = font({{'a', {{0, 0, 500, 500}}}}, "first");
  both.faces.push_back(font({{'a', {{0, 0, 100, 100}}}, {'b', {{0, 0, 900, 900}}}}, "second").faces.front());
  const auto images = draw(both, {'a', 'b'}, 40);
  ASSERT_EQ(images.characters, (std::vector<char32_t>{'a', 'b'}));
  EXPECT_EQ(ink_extent(images.pixels.data(), 40), (Extent{11, 28, 11, 28}));
}

TEST_F(GlyphRenderer, ThreadsDoNotChangeTheResult) {
  const auto many = font(test::boxes_from(0x4E00, 1000));
  std::vector<char32_t> characters;
  for (char32_t c = 0x4E00 + 999; c >= 0x4E00; --c) characters.push_back(c);
  const auto one = draw(many, characters, 16, 1), four = draw(many, characters, 16, 4);
  EXPECT_EQ(one.characters, characters);
  EXPECT_EQ(one.characters, four.characters);
  EXPECT_EQ(one.pixels, four.pixels);
}

TEST_F(GlyphRenderer, BrokenFilesAreNamed) {
  const auto whole = font({{'a', {{0, 0, 500, 500}}}});
  const std::string path = whole.faces.front().file.string(), bytes = test::slurp(path);
  test::spill(path, bytes.substr(0, bytes.size() - 40));
  const auto cut = text_of<DataError>([&] { draw(whole, {'a'}, 16); });
  EXPECT_TRUE(cut.starts_with("font file '" + path + "' is cut short (table '")) << cut;
  EXPECT_TRUE(cut.ends_with(" of " + std::to_string(bytes.size() - 40) + "): install it again")) << cut;
  test::spill(path, std::string(500, 'x'));
  EXPECT_EQ(text_of<DataError>([&] { draw(whole, {'a'}, 16); }),
            "font file '" + path + "' cannot be read as a font (unknown file format): install it again");
  test::spill(path, "");
  EXPECT_TRUE(
      text_of<DataError>([&] { draw(whole, {'a'}, 16); }).starts_with("font file '" + path + "' cannot be read"));
  std::filesystem::remove(path);
  EXPECT_EQ(text_of<IoError>([&] { draw(whole, {'a'}, 16); }),
            "file '" + path + "' cannot be read (No such file or directory)");
}

TEST_F(GlyphRenderer, AGlyphThatCannotBeReadIsNamed) {
  auto broken = font({{0x4E00, {{0, 0, 500, 500}}}});
  const std::string path = broken.faces.front().file.string();
  auto bytes = test::slurp(path);
  const auto outline = bytes.find(std::string("\0\1\0\0\0\0\x01\xF4\x01\xF4", 10));  // contours and box of the glyph
  ASSERT_NE(outline, bytes.npos);
  bytes[outline] = '\x7F';  // 32,513 contours
  test::spill(path, bytes);
  const auto text = text_of<DataError>([&] { draw(broken, {0x4E00}, 16); });
  EXPECT_TRUE(text.starts_with("font file '" + path + "' cannot draw \u4E00 U+4E00 (")) << text;
  EXPECT_TRUE(text.ends_with("): install it again, or leave this font out")) << text;
}

TEST_F(GlyphRenderer, DamagedBytesNeverCrash) {
  const auto whole = font(test::boxes_from(0x4E00, 4));
  const std::string path = whole.faces.front().file.string(), bytes = test::slurp(path);
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto damaged = bytes;
    damaged[i] = static_cast<char>(~damaged[i]);
    test::spill(path, damaged);
    try {
      draw(whole, {0x4E00, 0x4E01, 0x4E02, 0x4E03}, 16);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace tandem::data
