#include "tandem/data/record/image_record.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::bytes_of;
using test::text_of;

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const std::string kOneLabel("\0\0\0\0\0\0\xE0\x40\5\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0jpeg", 28);
const std::string kTwoLabels("\2\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0\0\0\x80\x3F\0\0\0\x40jpeg", 36);

TEST(ImageRecord, LabelsAndImageComeFromTheirPlaces) {
  const auto one = parse_image_record(bytes_of(kOneLabel));
  EXPECT_EQ(one.label, 7.0F);
  EXPECT_EQ(one.id, 5U);
  EXPECT_EQ(one.id2, 6U);
  EXPECT_TRUE(one.labels.empty());
  EXPECT_EQ(text(one.image), "jpeg");
  const auto two = parse_image_record(bytes_of(kTwoLabels));
  EXPECT_EQ(two.labels, (std::vector<float>{1.0F, 2.0F}));
  EXPECT_EQ(text(two.image), "jpeg");
}

TEST(ImageRecord, PackingIsTheInverse) {
  for (const auto& payload : {kOneLabel, kTwoLabels, kTwoLabels.substr(0, 32)}) {
    EXPECT_EQ(text(pack_image_record(parse_image_record(bytes_of(payload)))), payload);
  }
}

TEST(ImageRecord, ShortPayloadsAreTold) {
  EXPECT_EQ(text_of<DataError>([&] { parse_image_record(bytes_of(kOneLabel).first(23)); }),
            "is 23 bytes, wanted at least a header of 24");
  EXPECT_EQ(text_of<DataError>([&] { parse_image_record(bytes_of(kTwoLabels).first(31)); }),
            "has 2 labels, wanted at most the 1 that fit behind its header");
  const std::string many = "\xFF\xFF\xFF\xFF" + kOneLabel.substr(4);
  EXPECT_EQ(text_of<DataError>([&] { parse_image_record(bytes_of(many)); }),
            "has 4294967295 labels, wanted at most the 1 that fit behind its header");
}

TEST(ImageRecord, FaultsOfItsUseGetItsPlace) {
  std::vector<std::byte> file;
  storage::append_record(bytes_of("no header"), file);
  const auto second = file.size();
  storage::append_record(bytes_of(kOneLabel), file);
  const auto use = [](const ImageRecord&) { throw DataError("is no cat"); };
  EXPECT_EQ(text_of<DataError>([&] { with_image_record(file, 0, "x.rec", use); }),
            "'x.rec': record[byte 0] is 9 bytes, wanted at least a header of 24");
  EXPECT_EQ(text_of<DataError>([&] { with_image_record(file, second, "x.rec", use); }),
            "'x.rec': record[byte 20] is no cat");
}

}  // namespace
}  // namespace tandem::data
