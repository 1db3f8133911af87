#include "tandem/data/verification_pairs.h"

#include <gtest/gtest.h>

#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/python.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::TemporaryFolder;
using test::text_of;

class VerificationPairsTest : public testing::Test {
 protected:
  /// Writes pairs.bin with Python, out of images given.
  void dump(const std::vector<std::string>& images, const std::string& same, int protocol) {
    for (size_t i = 0; i < images.size(); ++i) test::spill(folder_ / std::to_string(i), images[i]);
    const auto result = test::run_python(
        folder_, "import pickle\nimages = [open(str(i), 'rb').read() for i in range(" + std::to_string(images.size()) +
                     ")]\nwith open('pairs.bin', 'wb') as file: pickle.dump((images, " + same + "), file, " +
                     std::to_string(protocol) + ")\n");
    ASSERT_EQ(result.status, 0) << result.output;
  }
  VerificationPairs open(int64_t size = 8) { return verification_pairs({.file = folder_ / "pairs.bin", .size = size}); }
  std::string place() { return "'" + (folder_ / "pairs.bin").string() + "'"; }

  TemporaryFolder folder_;
};

TEST_F(VerificationPairsTest, ImagesAreDecodedInTheirOrder) {
  std::vector<std::string> images;
  for (const uint8_t grey : {10, 20, 30}) images.push_back(test::png_of(9, 12, grey, grey, grey));
  images.push_back(test::jpeg_of(9, 12, 40, 40, 40));
  for (const int protocol : {2, 4}) {
    dump(images, "[False, True]", protocol);
    const auto pairs = open();
    EXPECT_EQ(pairs.same, (std::vector<bool>{false, true}));
    ASSERT_EQ(pairs.images->size(), 4);
    EXPECT_EQ(pairs.images->num_classes(), 2);
    EXPECT_EQ(pairs.images->image_shape(), (std::array<int64_t, 3>{3, 8, 8}));
    std::vector<uint8_t> pixels(3 * 8 * 8);
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(pairs.images->read(i, pixels), i / 2);
      EXPECT_EQ(pixels[0], 10 * (i + 1)) << protocol;
    }
    EXPECT_EQ(pairs.images->class_name(1), "pair 1");
    EXPECT_EQ(pairs.summary, "pairs    2 from " + (folder_ / "pairs.bin").string() + " · same: 1");
  }
}

TEST_F(VerificationPairsTest, PicturesStandUprightUnlessStoredIsAskedFor) {
  const auto plain = test::png_of(2, 1, 1, {0, 200});
  auto tagged = plain;
  tagged.insert(33, test::png_chunk("eXIf", test::exif_of(3)));  // by half a turn
  dump({tagged, plain}, "[True]", 4);
  std::vector<uint8_t> pixels(3 * 8 * 8);
  for (const auto& [orientation, red] : {std::pair(Orientation::exif, 200), {Orientation::stored, 0}}) {
    const auto pairs =
        verification_pairs({.file = folder_ / "pairs.bin", .size = 8, .form = {.orientation = orientation}});
    pairs.images->read(0, pixels);
    EXPECT_EQ(pixels[0], red);
    pairs.images->read(1, pixels);
    EXPECT_EQ(pixels[0], 0);
  }
}

TEST_F(VerificationPairsTest, AnImageThatIsNoneIsTold) {
  dump({test::png_of(9, 12, 1, 2, 3), "hello"}, "[True]", 4);
  EXPECT_EQ(text_of<DataError>([&] { open(); }), place() + ": images[1] is neither JPEG nor PNG");
}

TEST_F(VerificationPairsTest, AnImageCutShortIsToldWhenRead) {
  const auto whole = test::jpeg_of(12, 9, 1, 2, 3);
  dump({whole, whole.substr(0, whole.size() - 10)}, "[True]", 4);
  const auto pairs = open();
  std::vector<uint8_t> pixels(3 * 8 * 8);
  EXPECT_EQ(text_of<DataError>([&] { pairs.images->read(1, pixels); }),
            place() + ": images[1] is a JPEG that cannot be decoded (Premature end of JPEG file)");
}

TEST_F(VerificationPairsTest, NumbersForFlagsAreTold) {
  dump({test::png_of(9, 12, 1, 2, 3), test::png_of(9, 12, 1, 2, 3)}, "[1]", 4);
  const auto told = text_of<DataError>([&] { open(); });
  EXPECT_NE(told.find("is opcode 0x4B, wanted one of those that lists of bytes and bool need"), std::string::npos)
      << told;
}

TEST_F(VerificationPairsTest, WrongSettingsAndFilesAreTold) {
  EXPECT_EQ(text_of<SettingsError>([&] { open(7); }), "size is 7, wanted 8..1024");
  EXPECT_EQ(text_of<IoError>([&] { open(); }), "file " + place() + " cannot be read (No such file or directory)");
}

}  // namespace
}  // namespace tandem::data
