#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/data/image_folder.h"
#include "tandem/data/image_list.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;
using test::text_of;

constexpr int kSide = 8;

class TestFolder : public testing::Test {
 protected:
  void add(const std::string& name) { test::spill(folder_ / name, test::png_of(9, 9, 50, 60, 70)); }
  void add_class(const std::string& name, int images) {
    for (int i = 0; i < images; ++i) add(name + "/" + std::to_string(i) + ".png");
  }
  std::string place(const std::string& name = "") { return (folder_ / name).string(); }
  ImageFolderOptions options(const std::string& name) {
    return {.folder = folder_ / name, .hold_out = 3, .form = {.height = kSide, .width = kSide / 2}};
  }
  KnownClasses trained_on(const std::string& name) {
    const auto split = image_folder({.folder = folder_ / name, .size = kSide, .hold_out = 3});
    KnownClasses known{{}, image_fingerprint(*split.train), folder_ / name};
    for (int64_t i = 0; i < split.train->num_classes(); ++i) known.names.push_back(split.train->class_name(i));
    return known;
  }
  static std::vector<std::pair<int64_t, std::string>> contents(const Dataset& images) {
    std::vector<std::pair<int64_t, std::string>> all;
    std::vector<uint8_t> pixels(3 * kSide * kSide / 2);
    for (int64_t i = 0; i < images.size(); ++i) {
      all.emplace_back(images.read(i, pixels), fs::path(images.sample_name(i)).filename());
    }
    return all;
  }
  test::TemporaryFolder folder_;
};

using Contents = std::vector<std::pair<int64_t, std::string>>;

TEST_F(TestFolder, OfTheTrainingFolderWhatWasHeldOut) {
  add_class("pics/cat", 4), add_class("pics/dog", 3);
  const auto known = trained_on("pics");
  fs::rename(folder_ / "pics", folder_ / "moved");
  const auto split = test_folder(options("moved"), known);
  EXPECT_EQ(split.train, nullptr);
  EXPECT_EQ(contents(*split.test), (Contents{{0, "2.png"}, {1, "2.png"}}));
  EXPECT_EQ(split.test->image_shape(), (std::array<int64_t, 3>{3, kSide, kSide / 2}));
  EXPECT_EQ(split.summary, "images   2 classes · 2 images from " + place("moved") +
                               " · those held out of training, 1 of 3 of each class");
}

TEST_F(TestFolder, OfAChangedTrainingFolderAllAndSaysSo) {
  add_class("pics/cat", 4), add_class("pics/dog", 3);
  const auto known = trained_on("pics");
  add("pics/cat/9.png");
  EXPECT_EQ(test_folder(options("pics"), known).summary,
            "images   2 classes · 8 images from " + place("pics") +
                " · none left out: other images, or another data.hold_out, than in training, and images that were "
                "trained on are among them");
}

TEST_F(TestFolder, OfOtherFoldersAllWithTheModelsLabels) {
  add_class("pics/cat", 4), add_class("pics/dog", 3), add_class("pics/eel", 2);
  add_class("new/eel", 2), add_class("new/cat", 1);
  const auto known = trained_on("pics");
  const auto split = test_folder(options("new"), known);
  EXPECT_EQ(contents(*split.test), (Contents{{0, "0.png"}, {2, "0.png"}, {2, "1.png"}}));
  EXPECT_EQ(split.test->num_classes(), 3);
  EXPECT_EQ(split.test->class_name(2), "eel");
  EXPECT_EQ(split.summary, "images   3 classes · 3 images from " + place("new") + " · none left out");
  add_class("both/train/cat", 3), add_class("both/train/dog", 3), add_class("both/test/dog", 1);
  EXPECT_EQ(contents(*test_folder(options("both"), known).test), (Contents{{1, "0.png"}}));
}

TEST_F(TestFolder, UnknownClassesAreNamed) {
  add_class("pics/cat", 4), add_class("pics/dog", 3), add_class("new/cow", 1);
  auto known = trained_on("pics");
  EXPECT_EQ(text_of<DataError>([&] { test_folder(options("new"), known); }),
            "class folder '" + place("new/cow") +
                "' is none of the model's 2 classes, wanted one of them, as 'cat': rename it, or remove it");
  EXPECT_EQ(text_of<DataError>([&] { test_folder(options("nowhere"), known); }),
            "image folder '" + place("nowhere") + "' does not exist, wanted a folder with a sub-folder for each class");
  known.takes_others = true;
  add_class("new/dog", 2);
  const auto split = test_folder(options("new"), known);
  EXPECT_TRUE(split.has_other_classes);
  EXPECT_EQ(contents(*split.test), (Contents{{0, "0.png"}, {1, "0.png"}, {1, "1.png"}}));
  EXPECT_EQ(split.test->class_name(1), "dog");
  fs::remove_all(folder_ / "new/cow");
  EXPECT_FALSE(test_folder(options("new"), known).has_other_classes);
}

TEST_F(TestFolder, ImagesOfAListHaveNoLabels) {
  add_class("pics/b", 2), add("one.png");
  test::spill(folder_ / "pics/note.txt", "not an image");
  const ImageForm form{.height = kSide, .width = kSide / 2};
  const auto images = image_list({folder_ / "one.png", folder_ / "pics"}, form);
  EXPECT_EQ(contents(*images), (Contents{{0, "one.png"}, {0, "0.png"}, {0, "1.png"}}));
  EXPECT_EQ(images->sample_name(1), place("pics/b/0.png"));
  EXPECT_EQ(images->describe(),
            "images   3 without labels · passed over, neither JPEG nor PNG: 1 file, " + place("pics/note.txt"));
  const auto told = [&](const std::string& name) {
    return text_of<DataError>([&] { image_list({folder_ / name}, form); });
  };
  EXPECT_EQ(told("two.png"), "image '" + place("two.png") + "' does not exist, wanted an image or a folder of images");
  EXPECT_EQ(told("pics/note.txt"), "image '" + place("pics/note.txt") + "' is neither JPEG nor PNG");
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(told("empty"), "folder '" + place("empty") + "' has no JPEG and no PNG");
  EXPECT_EQ(text_of<DataError>([&] { image_list({}, form); }),
            "no image is given, wanted an image or a folder of images");
}

}  // namespace
}  // namespace tandem::data
