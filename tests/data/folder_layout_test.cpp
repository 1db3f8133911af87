#include "tandem/data/image/folder_layout.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using Files = std::vector<std::string>;

class Layout : public testing::Test {
 protected:
  /// "flat", "split TRAIN [TEST]" or the error's text, of a folder D with these files.
  std::string of(const Files& files, LayoutKind kind = LayoutKind::automatic) {
    const test::TemporaryFolder folder;
    for (const auto& file : files) test::spill(folder / file, "x");
    std::string text;
    const auto fault = test::text_of<DataError>([&] {
      const auto layout = find_layout(folder.path(), kind);
      const auto test = layout.test ? " " + layout.test->filename().string() : "";
      text = layout.train == folder.path() ? "flat" : "split " + layout.train.filename().string() + test;
    });
    if (!text.empty()) return text;
    return std::string(fault).replace(fault.find(folder.path().string()), folder.path().string().size(), "D");
  }

  static bool in_doubt(const std::string& text) {
    return text.starts_with("image folder 'D' may be split into training and test set or not: ");
  }
};

TEST_F(Layout, SetsBesideEachOtherAreASplit) {
  EXPECT_EQ(of({"train/a/1.jpg", "test/a/1.jpg"}), "split train test");
  EXPECT_EQ(of({"TRAINING/a/1.jpg", "Val/a/deep/1.jpg"}), "split TRAINING Val");
  EXPECT_EQ(of({"train/a/1.jpg", "val/a/1.jpg", "test/a/1.jpg"}), "split train test");
  EXPECT_EQ(of({"train/a/1.jpg", "val/a/1.jpg", "test/1.jpg"}), "split train val");  // of unknown classes
  EXPECT_EQ(of({"train/a/1.jpg", "val/a/1.jpg", "labels/a/1.xml"}), "split train val");
  EXPECT_EQ(of({"train/a/1.jpg", "val/a/1.jpg", "samples/1.jpg"}), "split train val");
  EXPECT_EQ(of({"train/a/1.jpg", "train/sheet.jpg", "val/a/1.jpg"}), "split train val");
}

TEST_F(Layout, ATrainingSetAloneIsASplit) {
  EXPECT_EQ(of({"train/a/1.jpg", "train/b/1.jpg"}), "split train");
  EXPECT_EQ(of({"train/a/1.jpg", "train/sheet.jpg", "labels/1.xml"}), "split train");
  EXPECT_EQ(of({"train/a/notes.txt"}), "split train");  // an empty class, which is told
}

TEST_F(Layout, AClassMayHaveTheNameOfASet) {
  EXPECT_EQ(of({"a/1.jpg", "b/1.jpg"}), "flat");
  EXPECT_EQ(of({"train/1.jpg", "car/1.jpg"}), "flat");
  EXPECT_EQ(of({"Train/1.jpg", "train/1.jpg", "car/1.jpg"}), "flat");
  EXPECT_EQ(of({"train/1.jpg", "test/1.jpg", "valid/1.jpg", "car/1.jpg"}), "flat");
  EXPECT_EQ(of({"train/1.jpg", "car/red/1.jpg", "car/blue/1.jpg"}), "flat");
  EXPECT_EQ(of({"train/1.jpg", "train/steam/1.jpg", "car/1.jpg"}), "flat");
  EXPECT_EQ(of({"valid/1.jpg", "invalid/1.jpg"}), "flat");
  EXPECT_EQ(of({"train/1.jpg"}), "flat");  // one class, which is told
}

TEST_F(Layout, WhatMayBeBothIsAnError) {
  EXPECT_EQ(of({"train/steam/1.jpg", "car/1.jpg"}),
            "image folder 'D' may be split into training and test set or not: 'train' has sub-folders with images, "
            "'car' has images: set layout=split to train on the sub-folders of 'train', or layout=flat if it is a "
            "class as the others are");
  EXPECT_EQ(of({"test/a/1.jpg", "a/1.jpg", "b/1.jpg"}),
            "image folder 'D' may be split into training and test set or not: 'test' has sub-folders with images, 'a' "
            "has images: if 'test' is a class, set layout=flat; if it is a test set, put the training set's classes "
            "into a folder train beside it");
  EXPECT_TRUE(in_doubt(of({"train/steam/1.jpg", "car/red/1.jpg"})));
  EXPECT_TRUE(in_doubt(of({"train/a/1.jpg", "test/a/1.jpg", "car/a/1.jpg"})));
  EXPECT_TRUE(in_doubt(of({"train/a/1.jpg", "train/1.jpg", "test/a/1.jpg", "test/1.jpg", "car/1.jpg"})));
  EXPECT_TRUE(in_doubt(of({"train/a/1.jpg", "test/1.jpg"})));
  EXPECT_TRUE(in_doubt(of({"train/1.jpg", "test/a/1.jpg"})));
  EXPECT_TRUE(in_doubt(of({"train/1.jpg", "test/1.jpg"})));
}

TEST_F(Layout, TheKindDecides) {
  const Files doubtful = {"train/steam/1.jpg", "car/1.jpg", "val/1.jpg"};
  EXPECT_TRUE(in_doubt(of(doubtful)));
  EXPECT_EQ(of(doubtful, LayoutKind::flat), "flat");
  EXPECT_EQ(of(doubtful, LayoutKind::split), "split train");
  EXPECT_EQ(of({"train/a/1.jpg", "test/1.jpg"}, LayoutKind::split), "split train");
  EXPECT_EQ(of({"train/a/1.jpg", "test/notes.txt"}), "split train test");  // an empty set, which is told
  EXPECT_EQ(of({"train/a/1.jpg", "test/a/1.jpg"}, LayoutKind::flat), "flat");
  EXPECT_EQ(of({"a/1.jpg"}, LayoutKind::split),
            "image folder 'D' has no training set, wanted a sub-folder train: rename the training set's folder to "
            "train, name a folder whose sub-folders are the classes, or set layout=flat");
}

TEST_F(Layout, HiddenAndOtherFilesDoNotCount) {
  EXPECT_EQ(of({"train/a/1.jpg", ".cache/1.jpg", "notes/.thumb.jpg", "1.jpg"}), "split train");
  EXPECT_EQ(of({"train/.a/1.jpg", "train/1.jpg", "car/1.jpg"}), "flat");
  EXPECT_EQ(of({"train/1", "car/1.jpg"}), "flat");
  const test::TemporaryFolder folder;
  for (const auto* file : {"train/0a", "car/0b"}) test::spill(folder / file, "\xFF\xD8\xFF");  // by their bytes
  EXPECT_EQ(find_layout(folder.path(), LayoutKind::automatic).train, folder.path());
}

}  // namespace
}  // namespace tandem::data
