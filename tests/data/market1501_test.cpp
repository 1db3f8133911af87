#include "tandem/data/market1501.h"

#include <gtest/gtest.h>

#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::TemporaryFolder;
using test::text_of;
using Contents = std::vector<std::pair<int64_t, int>>;
using Numbers = std::vector<int64_t>;

class Market1501Test : public testing::Test {
 protected:
  void add(const std::string& name, uint8_t grey = 50) {
    const bool is_png = name.ends_with(".png");
    test::spill(folder_ / name, is_png ? test::png_of(4, 8, grey, grey, grey) : test::jpeg_of(4, 8, grey, grey, grey));
  }
  void add_smallest() {
    for (const std::string name : {"bounding_box_train/0002_c1s1_000451_03.jpg", "query/0001_c1s1_001051_00.jpg",
                                   "bounding_box_test/0001_c2s1_000301_00.jpg"}) {
      add(name);
    }
  }
  Split open(int64_t hold_out = 0) {
    return market1501({.folder = folder_.path(), .height = 16, .width = 8, .hold_out = hold_out});
  }
  std::string told(int64_t hold_out = 0) {
    return text_of<DataError>([&] { open(hold_out); });
  }
  std::string place(const std::string& name) { return "'" + (folder_ / name).string() + "'"; }

  /// (label, red value of the first pixel) of each sample.
  static Contents contents(const Dataset& dataset) {
    Contents all;
    std::vector<uint8_t> pixels(3 * 16 * 8);
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const int64_t label = dataset.read(i, pixels);
      all.emplace_back(label, pixels[0]);
    }
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(Market1501Test, TrainingClassesAreThePidsSorted) {
  add_smallest();
  add("bounding_box_train/0011_c6s4_002427_02.png", 20);
  add("bounding_box_train/0007_c3s3_077419_01.png", 30);
  add("bounding_box_train/0007_c1s6_028546_01.png", 31);
  add("bounding_box_train/-1_c1s1_000401_03.png", 99);
  const auto task = open();
  EXPECT_EQ(contents(*task.train), (Contents{{0, 50}, {1, 31}, {1, 30}, {2, 20}}));
  EXPECT_EQ(task.train->num_classes(), 3);
  EXPECT_EQ(task.train->class_name(1), "7");
  EXPECT_EQ(task.train->image_shape(), (std::array<int64_t, 3>{3, 16, 8}));
  EXPECT_EQ(task.test, nullptr);
  EXPECT_EQ(task.retrieval->what, "people, query: 1 · gallery: 1");
  EXPECT_EQ(task.summary, "people   3 classes · 4 images from " + folder_.path().string());
}

TEST_F(Market1501Test, PicturesStandUprightUnlessStoredIsAskedFor) {
  add_smallest();
  auto tagged = test::png_of(2, 1, 1, {0, 200});
  tagged.insert(33, test::png_chunk("eXIf", test::exif_of(3)));  // by half a turn
  for (const std::string name : {"bounding_box_train/0003_c1s1_000001_01.png", "query/0003_c1s1_000001_01.png"}) {
    test::spill(folder_ / name, tagged);
  }
  for (const auto& [orientation, red] : {std::pair(Orientation::exif, 200), {Orientation::stored, 0}}) {
    const auto task =
        market1501({.folder = folder_.path(), .height = 16, .width = 8, .form = {.orientation = orientation}});
    EXPECT_EQ(contents(*task.train)[1], (std::pair<int64_t, int>(1, red)));
    EXPECT_EQ(contents(*task.retrieval->query.images)[1], (std::pair<int64_t, int>(3, red)));
  }
}

TEST_F(Market1501Test, JunkIsDroppedAndDistractorsStay) {
  add_smallest();
  add("query/0020_c3s1_000151_00.png", 20);
  add("bounding_box_test/0000_c5s1_000051_01.png", 30);
  add("bounding_box_test/-1_c4s1_000101_02.png", 99);
  add("bounding_box_test/0020_c6s1_000151_03.png", 40);
  const auto task = open();
  EXPECT_EQ(contents(*task.retrieval->query.images), (Contents{{1, 50}, {20, 20}}));
  EXPECT_EQ(task.retrieval->query.identity, (Numbers{1, 20}));
  EXPECT_EQ(task.retrieval->query.camera, (Numbers{1, 3}));
  EXPECT_EQ(contents(*task.retrieval->gallery.images), (Contents{{0, 30}, {1, 50}, {20, 40}}));
  EXPECT_EQ(task.retrieval->gallery.identity, (Numbers{0, 1, 20}));
  EXPECT_EQ(task.retrieval->gallery.camera, (Numbers{5, 2, 6}));
  EXPECT_EQ(task.retrieval->query.images->num_classes(), 21);
  EXPECT_EQ(task.retrieval->gallery.images->num_classes(), 21);
  EXPECT_EQ(task.retrieval->gallery.images->class_name(20), "20");
  EXPECT_EQ(task.retrieval->gallery.images->describe(), "people   gallery · 3 images from " + folder_.path().string());
}

TEST_F(Market1501Test, OtherFilesArePassedOver) {
  add_smallest();
  for (const std::string name : {"query/Thumbs.db", "query/._0001_c1s1_001051_00.jpg", "query/README",
                                 "query/folder.jpg/0001_c1s1_001051_00.jpg"}) {
    test::spill(folder_ / name, "x");
  }
  EXPECT_EQ(open().retrieval->query.images->size(), 1);
}

TEST_F(Market1501Test, EveryThirdOfAPersonIsHeldOutWhereAsked) {
  add_smallest();
  for (int i = 0; i < 4; ++i) {
    add("bounding_box_train/0007_c1s1_00000" + std::to_string(i) + "_01.png", static_cast<uint8_t>(i));
  }
  const auto task = open(3);
  EXPECT_EQ(contents(*task.train), (Contents{{0, 50}, {1, 0}, {1, 1}, {1, 3}}));
  EXPECT_EQ(contents(*task.test), (Contents{{1, 2}}));
  EXPECT_EQ(task.test->num_classes(), 2);
}

TEST_F(Market1501Test, NothingToHoldOutIsTold) {
  add_smallest();
  EXPECT_EQ(told(2), "folder " + place("bounding_box_train") +
                         " has one image a person, wanted two to hold one out: add images, or set hold_out=0");
}

TEST_F(Market1501Test, EachFaultNamesItsPlace) {
  const std::string layout =
      " does not exist: wanted bounding_box_train, query and bounding_box_test in one folder, as Market-1501 has them";
  EXPECT_EQ(told(), "folder " + place("bounding_box_train") + layout);
  add("bounding_box_train/0001_c1s1_000151_01.jpg");
  EXPECT_EQ(told(), "folder " + place("query") + layout);
  test::spill(folder_ / "query/Thumbs.db", "x");
  EXPECT_EQ(told(), "folder " + place("query") + " has no images, wanted at least one");
  add("query/cat.jpg");
  EXPECT_EQ(told(), "image " + place("query/cat.jpg") +
                        " has a name that cannot be read, wanted PID_cCAMERA..., PID -1..999999 and CAMERA 1..99, as "
                        "in 0001_c1s1_000151_01.jpg: rename it, or remove it");
  std::filesystem::remove(folder_ / "query/cat.jpg");
  add("query/0000_c1s1_000151_01.jpg");
  test::spill(folder_ / "bounding_box_test/0001_c1s1_000151_01.JPG", "hello");
  EXPECT_EQ(told(), "image " + place("bounding_box_test/0001_c1s1_000151_01.JPG") + " is neither JPEG nor PNG");
  add("bounding_box_test/0001_c1s1_000151_01.JPG");
  EXPECT_EQ(told(), "image " + place("query/0000_c1s1_000151_01.jpg") +
                        " is a query of pid 0, wanted 1 or more: 0 is what the gallery's distractors have, give this "
                        "person another pid");
}

TEST_F(Market1501Test, WrongSettingsAreTold) {
  const auto wrong = [](const Market1501Options& options) {
    return text_of<SettingsError>([&] { market1501(options); });
  };
  EXPECT_EQ(wrong({.height = 7}), "height is 7, wanted 8..1024");
  EXPECT_EQ(wrong({.width = 1025}), "width is 1025, wanted 8..1024");
  EXPECT_EQ(wrong({.hold_out = 1}), "hold_out is 1, wanted 0 for none, or 2 or more");
}

TEST(PersonImageNames, PidAndCameraAreRead) {
  const auto is = [](const char* name, int64_t pid, int64_t camera) {
    EXPECT_EQ(parse_person_image_name(name), (PersonImageName{pid, camera})) << name;
  };
  is("0001_c1s1_000151_01.jpg", 1, 1);
  is("-1_c6s4_020410_05.jpg", -1, 6);
  is("0000_c2s3_000151_01.jpg", 0, 2);
  is("0005_c2_f0046985.jpg", 5, 2);  // DukeMTMC-reID
  is("999999_c99s1_000151_01.jpg", 999999, 99);
}

TEST(PersonImageNames, OthersAreNot) {
  for (const char* name :
       {"", "cat.jpg", "0001.jpg", "0001_1s1.jpg", "0001_c.jpg", "0001_cs1_000151.jpg", "0001_c0s1_000151.jpg",
        "0001_c100s1_000151.jpg", "0001_c-1s1_000151.jpg", "-2_c1s1_000151.jpg", "1000000_c1s1_000151.jpg",
        "99999999999999999999_c1s1_0.jpg", "0001_c1", "0001_c1x1_000151.jpg", "_c1s1_000151.jpg", " 1_c1s1.jpg"}) {
    EXPECT_EQ(parse_person_image_name(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace tandem::data
