#include "tandem/data/image_folder.h"

#include <gtest/gtest.h>

#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::jpeg_of;
using test::png_of;
using test::TemporaryFolder;
using test::text_of;

class ImageFolderTest : public testing::Test {
 protected:
  void add(const std::string& name, uint8_t grey = 50) {
    test::spill(folder_ / name,
                name.ends_with(".png") ? png_of(12, 9, grey, grey, grey) : jpeg_of(12, 9, grey, grey, grey));
  }
  Split open() { return image_folder({.folder = folder_.path(), .size = 8, .hold_out = 3}); }
  std::string told() {
    return text_of<DataError>([&] { open(); });
  }
  std::string place(const std::string& name) { return (folder_ / name).string(); }

  /// (label, red value of the first pixel) of each sample.
  std::vector<std::pair<int64_t, int>> contents(const Dataset& dataset) {
    std::vector<std::pair<int64_t, int>> all;
    std::vector<uint8_t> pixels(3 * 8 * 8);
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const int64_t label = dataset.read(i, pixels);
      all.emplace_back(label, pixels[0]);
    }
    return all;
  }
  TemporaryFolder folder_;
};

using Contents = std::vector<std::pair<int64_t, int>>;

TEST_F(ImageFolderTest, ClassesAndSamplesAreSortedAndEveryThirdIsHeldOut) {
  for (int i = 0; i < 4; ++i) add("dog/" + std::to_string(i) + ".png", static_cast<uint8_t>(100 + i));
  for (int i = 0; i < 2; ++i) add("cat/deep/" + std::to_string(i) + ".png", static_cast<uint8_t>(10 + i));
  add("bee/only.png", 5);
  const auto split = open();
  EXPECT_EQ(contents(*split.train), (Contents{{0, 5}, {1, 10}, {2, 100}, {2, 101}, {2, 103}}));
  EXPECT_EQ(contents(*split.test), (Contents{{1, 11}, {2, 102}}));
  EXPECT_EQ(split.train->class_name(2), "dog");
  EXPECT_EQ(split.test->num_classes(), 3);
  EXPECT_EQ(split.train->image_shape(), (std::array<int64_t, 3>{3, 8, 8}));
  EXPECT_EQ(split.summary,
            "images   3 classes · 5 images from " + folder_.path().string() + " · held out: 1 of 3 of each class");
  EXPECT_THROW(split.train->class_name(3), c10::IndexError);
}

TEST_F(ImageFolderTest, TrainAndTestFoldersAreUsedWhereTheyAre) {
  for (const std::string place : {"train/a/1.jpg", "train/a/2.jpg", "train/b/1.jpg", "val/b/1.png"}) add(place);
  const auto split = open();
  EXPECT_EQ(split.train->size(), 3);
  EXPECT_EQ(contents(*split.test), (Contents{{1, 50}}));
  EXPECT_EQ(split.summary, "images   2 classes · 3 images from " + place("train") + " · held out: " + place("val"));
  add("test/a/1.png", 60);
  EXPECT_EQ(contents(*open().test), (Contents{{0, 60}}));  // test goes before val
}

TEST_F(ImageFolderTest, DotFilesAndLooseFilesArePassedOver) {
  add("a/1.jpg");
  add("a/2.jpg");
  test::spill(folder_ / "a/.DS_Store", "x");
  test::spill(folder_ / ".git/config", "x");
  test::spill(folder_ / "README", "x");
  EXPECT_EQ(open().train->size(), 1);
}

TEST_F(ImageFolderTest, EachFaultNamesItsPlace) {
  EXPECT_EQ(told(), "image folder '" + folder_.path().string() + "' has no classes, wanted a sub-folder for each");
  add("a/1.jpg");
  EXPECT_EQ(told(), "image folder '" + folder_.path().string() +
                        "' has one image a class, wanted two to hold one out: "
                        "add images, or make train and test folders in it");
  add("a/2.jpg");
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_EQ(told(), "class folder '" + place("empty") +
                        "' is empty, wanted at least one image: remove the folder, or put images into it");
  test::spill(folder_ / "empty/notes.txt", "hello");
  EXPECT_EQ(told(), "image '" + place("empty/notes.txt") + "' is neither JPEG nor PNG");
  test::spill(folder_ / "empty/notes.txt", "");
  EXPECT_EQ(told(), "image '" + place("empty/notes.txt") + "' is empty");
  EXPECT_EQ(text_of<DataError>([&] { image_folder({.folder = folder_ / "none"}); }),
            "image folder '" + place("none") + "' does not exist, wanted a folder with a sub-folder for each class");
}

TEST_F(ImageFolderTest, AClassOnlyInTheTestSet) {
  add("train/a/1.jpg");
  add("test/b/1.jpg");
  EXPECT_EQ(told(), "class folder '" + place("test/b") +
                        "' has no twin among the training classes: "
                        "add training images of it, or remove it");
}

TEST_F(ImageFolderTest, AFileCutShortIsNamedWhenRead) {
  add("a/1.jpg");
  add("a/2.jpg");
  const auto whole = test::slurp(folder_ / "a/1.jpg");
  test::spill(folder_ / "a/1.jpg", whole.substr(0, whole.size() - 10));
  const auto split = open();
  std::vector<uint8_t> pixels(3 * 8 * 8);
  EXPECT_EQ(text_of<DataError>([&] { split.train->read(0, pixels); }),
            "image '" + place("a/1.jpg") + "' is a JPEG that cannot be decoded (Premature end of JPEG file)");
  std::filesystem::remove(folder_ / "a/1.jpg");
  EXPECT_EQ(text_of<IoError>([&] { split.train->read(0, pixels); }),
            "file '" + place("a/1.jpg") + "' cannot be read (No such file or directory)");
}

TEST_F(ImageFolderTest, ALinkToNothingIsTold) {
  add("a/1.jpg");
  std::filesystem::create_symlink("gone.jpg", folder_ / "a/2.jpg");
  EXPECT_EQ(told(),
            "image '" + place("a/2.jpg") + "' is a symbolic link to nothing: remove it, or put back what it names");
}

TEST_F(ImageFolderTest, CmykIsToldAtOnce) {
  add("a/1.jpg");
  auto bytes = test::slurp(folder_ / "a/1.jpg");
  const auto frame = bytes.find("\xFF\xC0");  // the baseline frame's header; its number of channels comes 9 bytes on
  ASSERT_NE(frame, bytes.npos);
  bytes[frame + 9] = 4;
  test::spill(folder_ / "a/1.jpg", bytes);
  EXPECT_EQ(told(), "image '" + place("a/1.jpg") +
                        "' is a JPEG of 4 channels (CMYK has 4), wanted 1 or 3: save it as grey or RGB");
}

TEST_F(ImageFolderTest, WrongSettingsAreTold) {
  const auto wrong = [&](int64_t size, int64_t hold_out) {
    return text_of<SettingsError>(
        [&] { image_folder({.folder = folder_.path(), .size = size, .hold_out = hold_out}); });
  };
  EXPECT_EQ(wrong(7, 5), "data.size is 7, wanted 8..1024");
  EXPECT_EQ(wrong(1025, 5), "data.size is 1025, wanted 8..1024");
  EXPECT_EQ(wrong(64, 1), "data.hold_out is 1, wanted 2 or more");
}

}  // namespace
}  // namespace tandem::data
