#include "tandem/data/image_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;
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

TEST_F(ImageFolderTest, AClassMayBeCalledAsATrainingSetIs) {
  for (const std::string name : {"bus", "car", "train", "test"}) {
    for (int i = 0; i < 2; ++i) add(name + "/" + std::to_string(i) + ".png");
  }
  const auto split = open();
  EXPECT_EQ(split.train->num_classes(), 4);
  EXPECT_EQ(split.train->class_name(3), "train");
}

TEST_F(ImageFolderTest, FoldersThatASplitLeavesOutAreTold) {
  for (const std::string one : {"train/a/1.jpg", "train/b/1.jpg", "val/b/1.png", "more/1.png"}) add(one);
  test::spill(folder_ / "labels/1.xml", "x");
  EXPECT_TRUE(open().summary.ends_with(" · in neither set: 1 folder, " + place("more"))) << open().summary;
  add("test/1.png");
  EXPECT_TRUE(open().summary.ends_with(place("val") + " · in neither set: 2 folders, as " + place("test")))
      << open().summary;
}

TEST_F(ImageFolderTest, DotFilesAndLooseFilesArePassedOver) {
  add("a/1.jpg");
  add("a/2.jpg");
  add("b/1.jpg");
  test::spill(folder_ / "a/.DS_Store", "x");
  test::spill(folder_ / ".git/config", "x");
  test::spill(folder_ / "README", "x");
  EXPECT_EQ(open().train->size(), 2);
  EXPECT_EQ(open().summary.find("passed over"), std::string::npos);
}

TEST_F(ImageFolderTest, OtherFilesInAClassArePassedOverAndCounted) {
  for (const std::string image : {"a/1.jpg", "a/2.jpg", "b/1.png"}) add(image);
  test::spill(folder_ / "a/notes.txt", "hello");
  const std::string passed_over = " · passed over, neither JPEG nor PNG: ";
  const auto one = open().summary;
  EXPECT_TRUE(one.ends_with(passed_over + "1 file, " + place("a/notes.txt"))) << one;
  test::spill(folder_ / "b/deep/x.webp", std::string("RIFF\0\0\0\0WEBP", 12));
  test::spill(folder_ / "b/empty", "");
  const auto three = open();
  EXPECT_TRUE(three.summary.ends_with(passed_over + "3 files, as " + place("a/notes.txt"))) << three.summary;
  EXPECT_EQ(three.train->size(), 2);
  test::spill(folder_ / "b/no_extension", jpeg_of(12, 9, 7, 7, 7));
  EXPECT_EQ(open().train->size() + open().test->size(), 4);
  test::spill(folder_ / "c/page.html", "hello");
  EXPECT_EQ(told(),
            "class folder '" + place("c") +
                "' has no JPEG and no PNG, wanted at least one image: remove the folder, or put images into it");
}

TEST_F(ImageFolderTest, APipeInAClassIsPassedOverWhateverItsName) {
  for (const std::string image : {"a/1.jpg", "a/2.jpg", "b/1.png"}) add(image);
  ASSERT_EQ(mkfifo((folder_ / "a/pipe.jpg").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / "b/zero.jpg");
  const auto split = open();
  EXPECT_EQ(split.train->size(), 2);
  EXPECT_TRUE(split.summary.ends_with(" · passed over, neither JPEG nor PNG: 2 files, as " + place("a/pipe.jpg")))
      << split.summary;
}

TEST_F(ImageFolderTest, AClassMayBeALinkToAFolder) {
  for (const std::string image : {"a/1.jpg", "a/2.jpg", "b/1.png"}) add(image);
  fs::create_directory_symlink(folder_ / "a", folder_ / "c");
  fs::create_directory_symlink(folder_ / "a", folder_ / "b/linked");  // not within a class
  EXPECT_EQ(open().train->num_classes(), 3);
  EXPECT_EQ(open().train->size() + open().test->size(), 5);
}

TEST_F(ImageFolderTest, TrainingAndTestFoldersGoByManyNames) {
  for (const auto& [train, test] : std::vector<std::pair<std::string, std::string>>{
           {"train", "val"}, {"Train", "Test"}, {"TRAIN", "valid"}, {"training", "Validation"}, {"train", "testing"}}) {
    const TemporaryFolder folder;
    for (const auto& file : {train + "/a/1.png", train + "/b/1.png", test + "/b/1.png"}) {
      test::spill(folder / file, png_of(12, 9, 1, 1, 1));
    }
    const auto split = image_folder({.folder = folder.path(), .size = 8});
    EXPECT_EQ(split.train->size(), 2) << test;
    EXPECT_EQ(split.test->size(), 1) << test;
    EXPECT_TRUE(split.summary.ends_with(" · held out: " + (folder / test).string())) << split.summary;
  }
}

TEST_F(ImageFolderTest, ATestSetAloneAndTwoTrainingSetsAreTold) {
  for (const std::string file : {"Valid/a/1.jpg", "test/a/1.jpg"}) add(file);
  EXPECT_EQ(told(), "image folder '" + folder_.path().string() +
                        "' has 'Valid' but no training set, wanted a sub-folder train beside it: rename the training "
                        "set's folder to train, name a folder whose sub-folders are the classes, or set layout=flat");
  for (const std::string file : {"train/a/1.jpg", "Train/a/1.jpg"}) add(file);
  EXPECT_EQ(told(), "image folder '" + folder_.path().string() +
                        "' has 'Train' and 'train', wanted one of them: rename or remove the other");
}

TEST_F(ImageFolderTest, OneClassIsToldWithTheFolderThatWasMeant) {
  const auto fault = "image folder '" + folder_.path().string() + "' has one class, 'photos', wanted two or more: ";
  add("photos/1.jpg");
  EXPECT_EQ(told(), fault + "name the folder whose sub-folders are the classes");
  for (const std::string file : {"photos/inner/cat/1.jpg", "photos/inner/dog/1.jpg"}) add(file);
  EXPECT_EQ(told(), fault + "did you mean '" + place("photos/inner") + "'?");
  fs::remove_all(folder_ / "photos");
  add("train/a/1.jpg");
  EXPECT_EQ(told(), "image folder '" + place("train") +
                        "' has one class, 'a', wanted two or more: name the folder whose sub-folders are the classes");
}

TEST_F(ImageFolderTest, ImagesWithoutAClassAreTold) {
  add("1.jpg");
  EXPECT_EQ(told(), "image folder '" + folder_.path().string() +
                        "' has no classes, wanted a sub-folder for each: the images in it are of one class: name the "
                        "folder above it");
}

TEST_F(ImageFolderTest, ASetWithoutClassesIsTold) {
  add("train/1.jpg");
  EXPECT_EQ(told(), "image folder '" + folder_.path().string() +
                        "' has one class, 'train', wanted two or more: name the folder whose sub-folders are the "
                        "classes");
  EXPECT_EQ(text_of<DataError>([&] { image_folder({.folder = folder_.path(), .layout = LayoutKind::split}); }),
            "image folder '" + place("train") +
                "' has no classes, wanted a sub-folder for each: put the images in it into one for each class");
}

TEST_F(ImageFolderTest, EachFaultNamesItsPlace) {
  EXPECT_EQ(told(), "image folder '" + folder_.path().string() + "' has no classes, wanted a sub-folder for each");
  add("a/1.jpg");
  add("b/1.jpg");
  EXPECT_EQ(told(), "image folder '" + folder_.path().string() +
                        "' has one image a class, wanted two to hold one out: "
                        "add images, or make train and test folders in it");
  add("a/2.jpg");
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_EQ(told(), "class folder '" + place("empty") +
                        "' is empty, wanted at least one image: remove the folder, or put images into it");
  test::spill(folder_ / "empty/1.JPG", "hello");
  EXPECT_EQ(told(), "image '" + place("empty/1.JPG") + "' is neither JPEG nor PNG");
  test::spill(folder_ / "empty/1.JPG", "");
  EXPECT_EQ(told(), "image '" + place("empty/1.JPG") + "' is empty");
  EXPECT_EQ(text_of<DataError>([&] { image_folder({.folder = folder_ / "none"}); }),
            "image folder '" + place("none") + "' does not exist, wanted a folder with a sub-folder for each class");
}

TEST_F(ImageFolderTest, AClassOnlyInTheTestSet) {
  add("train/a/1.jpg");
  add("train/c/1.jpg");
  add("test/b/1.jpg");
  EXPECT_EQ(told(), "class folder '" + place("test/b") +
                        "' has no twin among the training classes: "
                        "add training images of it, or remove it");
}

TEST_F(ImageFolderTest, AFileCutShortIsNamedWhenRead) {
  for (const std::string image : {"a/1.jpg", "a/2.jpg", "b/1.jpg"}) add(image);
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

TEST_F(ImageFolderTest, AJpegOfTwoChannelsIsToldAtOnce) {
  add("a/1.jpg");
  auto bytes = test::slurp(folder_ / "a/1.jpg");
  const auto frame = bytes.find("\xFF\xC0");  // the baseline frame's header; its number of channels comes 9 bytes on
  ASSERT_NE(frame, bytes.npos);
  bytes[frame + 9] = 2;
  test::spill(folder_ / "a/1.jpg", bytes);
  EXPECT_EQ(told(),
            "image '" + place("a/1.jpg") + "' is a JPEG of 2 channels, wanted 1, 3 or 4: save it as grey or RGB");
}

TEST_F(ImageFolderTest, PicturesStandUprightUnlessStoredIsAskedFor) {
  const auto left_dark = png_of(2, 1, 1, {0, 200});
  auto tagged = left_dark;
  tagged.insert(33, test::png_chunk("eXIf", test::exif_of(3)));  // by half a turn
  for (const std::string name : {"a/1.png", "a/2.png", "b/1.png"}) test::spill(folder_ / name, tagged);
  const auto first = [&](Orientation orientation) {
    const auto split = image_folder({.folder = folder_.path(), .size = 8, .form = {.orientation = orientation}});
    return contents(*split.train)[0].second;
  };
  EXPECT_EQ(first(Orientation::exif), 200);
  EXPECT_EQ(first(Orientation::stored), 0);
}

TEST_F(ImageFolderTest, WrongSettingsAreTold) {
  const auto wrong = [&](int64_t size, int64_t hold_out) {
    return text_of<SettingsError>(
        [&] { image_folder({.folder = folder_.path(), .size = size, .hold_out = hold_out}); });
  };
  EXPECT_EQ(wrong(7, 5), "size is 7, wanted 8..1024");
  EXPECT_EQ(wrong(1025, 5), "size is 1025, wanted 8..1024");
  EXPECT_EQ(wrong(64, 1), "hold_out is 1, wanted 2 or more");
}

}  // namespace
}  // namespace tandem::data
