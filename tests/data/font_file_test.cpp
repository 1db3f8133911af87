#include "tandem/data/glyph/font_file.h"

#include <gtest/gtest.h>

#include "tests/data/tiny_font.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::bytes_of;

/// A collection of one font: its header, then the font with all its offsets moved by the header's length.
std::string collection_of(std::string font) {
  const std::string header("ttcf\0\1\0\0\0\0\0\1\0\0\0\x10", 16);
  const int tables = static_cast<unsigned char>(font[5]);
  for (int i = 0; i < tables; ++i) {
    auto* offset = reinterpret_cast<unsigned char*>(&font[12 + 16 * i + 8]);
    const unsigned moved = (offset[2] << 8 | offset[3]) + 16U;
    offset[2] = static_cast<unsigned char>(moved >> 8);
    offset[3] = static_cast<unsigned char>(moved);
  }
  return header + font;
}

TEST(FontFile, AWholeFontMissesNothing) {
  const auto font = test::tiny_font(test::boxes_from(0x4E00, 3));
  EXPECT_EQ(missing_font_bytes(bytes_of(font)), std::nullopt);
  EXPECT_EQ(missing_font_bytes(bytes_of(collection_of(font))), std::nullopt);
}

TEST(FontFile, EachCutIsSeen) {
  for (const auto& font : {test::tiny_font(test::boxes_from(0x4E00, 3)), collection_of(test::tiny_font({}))}) {
    const size_t padding = 3;  // after the last table
    for (size_t length = 4; length + padding < font.size(); ++length) {
      EXPECT_TRUE(missing_font_bytes(bytes_of(font.substr(0, length)))) << length;
    }
  }
}

TEST(FontFile, SaysWhatIsMissing) {
  const auto font = test::tiny_font(test::boxes_from(0x4E00, 3));
  EXPECT_EQ(missing_font_bytes(bytes_of(font.substr(0, 20))), "its table directory ends past byte 20");
  const auto cut = missing_font_bytes(bytes_of(font.substr(0, 300)));
  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->starts_with("table '") && cut->ends_with(" of 300")) << *cut;
  EXPECT_EQ(missing_font_bytes(bytes_of(std::string("ttcf\0\1\0\0\xFF\xFF\xFF\xFF", 12))),
            "its table directory ends past byte 12");
}

TEST(FontFile, OtherFormatsAreLeftToFreeType) {
  EXPECT_EQ(missing_font_bytes(bytes_of("%!PS-AdobeFont")), std::nullopt);
  EXPECT_EQ(missing_font_bytes({}), std::nullopt);
}

}  // namespace
}  // namespace tandem::data
