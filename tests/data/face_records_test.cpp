#include "tandem/data/face_records.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tandem/data/record/face_list.h"
#include "tandem/data/record/image_record.h"
#include "tandem/storage/record_io.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::bytes_of;
using test::png_of;
using test::TemporaryFolder;
using test::text_of;
using Contents = std::vector<std::pair<int64_t, int>>;

class FaceRecordsTest : public testing::Test {
 protected:
  uint64_t add(uint64_t key, ImageRecord record, const std::string& image) {
    record.image = bytes_of(image);
    return writer_.write(key, pack_image_record(record));
  }
  uint64_t add_face(uint64_t key, float label, uint8_t grey) {
    return add(key, {.label = label}, png_of(10, 8, grey, grey, grey));
  }
  void add_header(float first_identity, float end) { add(0, {.labels = {first_identity, end}}, ""); }
  void set_property(const std::string& text) { test::spill(folder_ / "property", text); }

  Split open(int64_t size = 0, int64_t hold_out = 0, Orientation orientation = Orientation::exif) {
    if (!std::exchange(closed_, true)) writer_.close();
    return face_records(
        {.folder = folder_.path(), .size = size, .hold_out = hold_out, .form = {.orientation = orientation}});
  }
  std::string told(int64_t size = 0, int64_t hold_out = 0) {
    return text_of<DataError>([&] { open(size, hold_out); });
  }
  std::string place(const std::string& name) { return "'" + (folder_ / name).string() + "'"; }

  /// (label, red value of the first pixel) of each sample.
  static Contents contents(const Dataset& dataset) {
    Contents all;
    const auto [channels, height, width] = dataset.image_shape();
    std::vector<uint8_t> pixels(static_cast<size_t>(channels * height * width));
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const int64_t label = dataset.read(i, pixels);
      all.emplace_back(label, pixels[0]);
    }
    return all;
  }

  TemporaryFolder folder_;
  storage::RecordWriter writer_{folder_ / "train.rec", folder_ / "train.idx"};
  bool closed_ = false;
};

TEST_F(FaceRecordsTest, APictureThatLiesIsTurnedUnlessStoredIsAskedFor) {
  auto face = png_of(10, 8, 7, 7, 7);
  face.insert(33, test::png_chunk("eXIf", test::exif_of(6)));
  add(0, {.label = 0}, face);
  const auto shape = [&](Orientation orientation) { return open(0, 0, orientation).train->image_shape(); };
  EXPECT_EQ(shape(Orientation::exif), (std::array<int64_t, 3>{3, 10, 8}));
  EXPECT_EQ(shape(Orientation::stored), (std::array<int64_t, 3>{3, 8, 10}));
  EXPECT_EQ(contents(*open().train), (Contents{{0, 7}}));
}

TEST_F(FaceRecordsTest, WithAHeaderTheImagesAreTheKeysBeforeTheIdentities) {
  add_header(4, 6);
  add_face(1, 0, 10);
  add(2, {.labels = {1, 99}}, png_of(10, 8, 20, 20, 20));  // the first label counts
  add_face(3, 1, 30);
  add(4, {.labels = {1, 2}}, "");
  add(5, {.labels = {2, 4}}, "");
  set_property("2,8,10\n");
  const auto split = open();
  EXPECT_EQ(contents(*split.train), (Contents{{0, 10}, {1, 20}, {1, 30}}));
  EXPECT_EQ(split.test, nullptr);
  EXPECT_EQ(split.train->num_classes(), 2);
  EXPECT_EQ(split.train->image_shape(), (std::array<int64_t, 3>{3, 8, 10}));
  EXPECT_EQ(split.train->class_name(1), "1");
  EXPECT_THROW(split.train->class_name(2), c10::IndexError);
  EXPECT_EQ(split.summary,
            "faces    2 classes · 3 images from " + (folder_ / "train.rec").string() + " · held out: none");
}

TEST_F(FaceRecordsTest, WithoutAHeaderEveryRecordIsAnImage) {
  add_face(0, 2, 10);
  add_face(1, 0, 20);
  const auto split = open(16);
  EXPECT_EQ(contents(*split.train), (Contents{{2, 10}, {0, 20}}));
  EXPECT_EQ(split.train->num_classes(), 3);  // the largest label + 1
  EXPECT_EQ(split.train->image_shape(), (std::array<int64_t, 3>{3, 16, 16}));
}

TEST_F(FaceRecordsTest, PropertySaysHowManyClassesThereAre) {
  add_face(0, 2, 10);
  set_property("7,112,96");
  const auto split = open();
  EXPECT_EQ(split.train->num_classes(), 7);
  EXPECT_EQ(split.train->image_shape(), (std::array<int64_t, 3>{3, 112, 96}));
}

TEST_F(FaceRecordsTest, ImagesOfAnotherSizeThanPropertySaysAreTold) {
  add_face(0, 0, 10);
  const auto summary = "faces    1 classes · 1 images from " + (folder_ / "train.rec").string() + " · held out: none";
  EXPECT_EQ(open(32).summary, summary);
  set_property("1,112,112");
  EXPECT_EQ(open(32).summary, summary + " · scaled from 112 x 112 to 32 x 32, size=112 keeps them");
  EXPECT_EQ(open(112).summary, summary);
  EXPECT_EQ(open(0).summary, summary);
  set_property("1,112,96");
  EXPECT_EQ(open(112).summary, summary + " · scaled from 112 x 96 to 112 x 112");
  EXPECT_EQ(face_property(folder_.path())->width, 96);
  EXPECT_EQ(face_property(folder_ / "none"), std::nullopt);
}

TEST_F(FaceRecordsTest, WithoutAnIndexTheRecordsAreCounted) {
  add_header(3, 4);
  add_face(1, 0, 10);
  add_face(2, 0, 20);
  add(3, {.labels = {1, 3}}, "");
  const auto with_index = contents(*open().train);
  std::filesystem::remove(folder_ / "train.idx");
  const auto without = face_records({.folder = folder_.path(), .hold_out = 0});
  EXPECT_EQ(contents(*without.train), with_index);
  EXPECT_EQ(with_index.size(), 2U);
}

TEST_F(FaceRecordsTest, KeysPutImagesInOrderAndEveryThirdOfAClassIsHeldOut) {
  for (const uint8_t key : {6, 5, 4, 3, 2, 1}) add_face(key, key == 6 ? 1 : 0, static_cast<uint8_t>(key * 10));
  const auto split = open(8, 3);
  EXPECT_EQ(contents(*split.train), (Contents{{0, 10}, {0, 20}, {0, 40}, {0, 50}, {1, 60}}));
  EXPECT_EQ(contents(*split.test), (Contents{{0, 30}}));
  EXPECT_EQ(split.summary, "faces    2 classes · 5 images from " + (folder_ / "train.rec").string() +
                               " · held out: 1 of 3 of each class");
}

TEST_F(FaceRecordsTest, AnImageCutIntoPartsIsReadWhole) {
  // An unknown chunk of 12 bytes behind the PNG's header puts the magic at byte 68 of the payload.
  const auto png = png_of(10, 8, 70, 80, 90);
  const std::string chunk = "qqQqxxx\x0A\x23\xD7\xCEyyyyy";
  uint32_t crc = 0xFFFFFFFF;
  for (const unsigned char byte : chunk) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
  }
  std::string whole = png.substr(0, 33) + std::string("\0\0\0\x0C", 4) + chunk;
  for (const int shift : {24, 16, 8, 0}) whole += static_cast<char>(~crc >> shift);
  whole += png.substr(33);
  add(0, {}, whole);
  const auto split = open(8);
  EXPECT_NE(test::slurp(folder_ / "train.rec")[7], 0);  // the record has parts
  EXPECT_EQ(contents(*split.train), (Contents{{0, 70}}));
}

TEST(FaceList, LabelsThatAreNoClassAreTold) {
  const auto image = png_of(10, 8, 1, 1, 1);
  for (const auto& [label, text] :
       std::vector<std::pair<float, std::string>>{{2, "2"},
                                                  {-1, "-1"},
                                                  {0.5F, "0.5"},
                                                  {std::numeric_limits<float>::quiet_NaN(), "nan"},
                                                  {std::numeric_limits<float>::infinity(), "inf"}}) {
    std::vector<std::byte> file;
    storage::append_record(pack_image_record({.label = label, .image = bytes_of(image)}), file);
    EXPECT_EQ(text_of<DataError>([&] {
                list_faces(file, std::vector<storage::RecordPlace>{{5, 0}}, 2, "x.rec");
              }),
              "'x.rec': record[byte 0] label is " + text +
                  ", wanted a whole number in 0..1: mend the record, or the number of classes in property");
  }
}

TEST_F(FaceRecordsTest, LabelsFrom2To24UpAreNotExact) {
  add_face(0, 16777216.0F, 10);
  EXPECT_EQ(told(), place("train.rec") +
                        ": record[byte 0] label is 16777216, wanted a whole number in 0..16777215: "
                        "mend the record, or the number of classes in property");
}

TEST_F(FaceRecordsTest, AHeaderBeyond2To24IsNotTrustedAndTheImagesAreThoseThatHoldOne) {
  add_header(17091658, 17451890);  // Glint360k's
  add_face(1, 0, 10);
  add_face(2, 1, 20);
  add(17091658, {.labels = {1, 2}}, "");
  EXPECT_EQ(contents(*open().train), (Contents{{0, 10}, {1, 20}}));
}

TEST_F(FaceRecordsTest, MissingImagesAreTold) {
  add_header(4, 5);
  add_face(1, 0, 10);
  add_face(3, 0, 10);
  add(4, {.labels = {1, 4}}, "");
  EXPECT_EQ(told(), place("train.rec") +
                        " has 2 images in its index, wanted 3 as record 0 says: remove train.idx, and "
                        "the records are indexed anew, or use another copy");
}

TEST(FaceList, FaultyHeadersAreTold) {
  for (const auto& [first, text] : std::vector<std::pair<float, std::string>>{
           {0, "0"}, {-3, "-3"}, {1.5F, "1.5"}, {std::numeric_limits<float>::quiet_NaN(), "nan"}}) {
    std::vector<std::byte> file;
    storage::append_record(pack_image_record({.labels = {first, 9}}), file);
    EXPECT_EQ(text_of<DataError>([&] {
                list_faces(file, std::vector<storage::RecordPlace>{{0, 0}}, 2, "x.rec");
              }),
              "'x.rec': record[byte 0] is a header whose first label is " + text + ", wanted a key from 1 up");
  }
}

TEST_F(FaceRecordsTest, NoRecordAtAllIsTold) {
  EXPECT_EQ(told(), place("train.rec") + " has no images, wanted at least one");
}

TEST_F(FaceRecordsTest, ARecordThatHoldsNoImageIsTold) {
  add_face(0, 0, 10);
  const auto offset = add(1, {}, "no image");
  EXPECT_EQ(told(), place("train.rec") + ": record[byte " + std::to_string(offset) + "] is neither JPEG nor PNG");
}

TEST_F(FaceRecordsTest, ADamagedIndexIsTold) {
  add_face(0, 0, 10);
  writer_.close();
  test::spill(folder_ / "train.idx", "0\t8\n");
  EXPECT_EQ(text_of<DataError>([&] { face_records({.folder = folder_.path()}); }),
            place("train.rec") + ": record[byte 8] begins with " +
                "0x00000000, wanted the magic 0xCED7230A: the file or its index is damaged or of another format, use "
                "another copy");
}

TEST_F(FaceRecordsTest, AnImageThatCannotBeDecodedIsNamedWhenRead) {
  const auto whole = test::jpeg_of(12, 9, 1, 2, 3);
  add(0, {}, whole.substr(0, whole.size() - 10));
  const auto split = open(8);
  std::vector<uint8_t> pixels(3 * 8 * 8);
  EXPECT_EQ(text_of<DataError>([&] { split.train->read(0, pixels); }),
            place("train.rec") + ": record[byte 0] is a JPEG that cannot be decoded (Premature end of JPEG file)");
}

TEST_F(FaceRecordsTest, FaultyPropertiesAreTold) {
  for (const std::string text : {"", "85742", "85742,112", "85742,112,112,3", "a,112,112", "0,112,112", "-1,112,112",
                                 "16777217,112,112", "9999999999999999999999,112,112", "2, 112,112", "2,112,112x"}) {
    EXPECT_EQ(text_of<DataError>([&] { parse_face_property(bytes_of(text), "property"); }),
              "'property' is not what is wanted: classes,height,width, with 1..16777216 classes: mend it, as in "
              "85742,112,112, or remove it")
        << text;
  }
  add_face(0, 0, 10);
  set_property("1,4,112");
  EXPECT_EQ(told(), place("train.rec") +
                        " says in property an image of height 4 and width 112, wanted 8..1024: set "
                        "size to the side wanted");
  EXPECT_EQ(open(8).train->size(), 1);
}

TEST_F(FaceRecordsTest, TheFirstImagesSideIsChecked) {
  add(0, {}, png_of(10, 4, 1, 1, 1));
  EXPECT_EQ(told(), place("train.rec") +
                        " begins with an image of height 4 and width 10, wanted 8..1024: set "
                        "size to the side wanted");
}

TEST_F(FaceRecordsTest, NothingToHoldOutIsTold) {
  add_face(0, 0, 10);
  EXPECT_EQ(told(8, 2), place("train.rec") +
                            " has one image a class, wanted two to hold one out: add images, or set "
                            "hold_out=0");
}

TEST(FaceRecords, WrongSettingsAndFoldersAreTold) {
  const TemporaryFolder folder;
  const auto told = [&](int64_t size, int64_t hold_out) {
    return text_of<Error>([&] { face_records({.folder = folder.path(), .size = size, .hold_out = hold_out}); });
  };
  EXPECT_EQ(told(7, 5), "size is 7, wanted 8..1024");
  EXPECT_EQ(told(1025, 5), "size is 1025, wanted 8..1024");
  EXPECT_EQ(told(0, 1), "hold_out is 1, wanted 0 for none, or 2 or more");
  EXPECT_EQ(told(0, -2), "hold_out is -2, wanted 0 for none, or 2 or more");
  EXPECT_EQ(told(0, 5), "folder '" + folder.path().string() + "' has no file train.rec, wanted one of image records");
}

}  // namespace
}  // namespace tandem::data
