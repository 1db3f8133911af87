#include "tandem/data/image/image_decoder.h"

#include <gtest/gtest.h>

#include "tandem/base/rng.h"
#include "tandem/data/image/odd_samples.h"
#include "tandem/data/png_encoder.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::bytes_of;
using test::jpeg_of;
using test::png_of;
using test::text_of;

std::string header_fault(const std::string& file) {
  return text_of<DataError>([&] { read_image_header(bytes_of(file)); });
}
std::string decode_fault(const std::string& file) {
  return text_of<DataError>([&] { decode_image(bytes_of(file)); });
}

std::string png_with_size(uint32_t width, uint32_t height) {
  auto file = png_of(2, 2, 1, 2, 3);
  for (int i = 0; i < 4; ++i) {
    file[16 + static_cast<size_t>(i)] = static_cast<char>(width >> (24 - 8 * i));
    file[20 + static_cast<size_t>(i)] = static_cast<char>(height >> (24 - 8 * i));
  }
  return file;
}

TEST(ImageHeader, TellsFormatAndSize) {
  const std::string jpeg_file = jpeg_of(37, 21, 1, 2, 3), png_file = png_of(300, 2, 1, 2, 3);
  const auto jpeg = read_image_header(bytes_of(jpeg_file));
  EXPECT_EQ(jpeg.format, ImageFormat::jpeg);
  EXPECT_EQ(jpeg.width, 37);
  EXPECT_EQ(jpeg.height, 21);
  const auto png = read_image_header(bytes_of(png_file));
  EXPECT_EQ(png.format, ImageFormat::png);
  EXPECT_EQ(png.width, 300);
  EXPECT_EQ(png.height, 2);
}

TEST(ImageHeader, SaysWhatIsWrong) {
  EXPECT_EQ(header_fault(""), "is empty");
  EXPECT_EQ(header_fault("GIF89a"), "is neither JPEG nor PNG");
  EXPECT_EQ(header_fault(png_of(2, 2, 1, 2, 3).substr(0, 20)), "is cut short inside its header");
  EXPECT_EQ(header_fault(jpeg_of(2, 2, 1, 2, 3).substr(0, 100)), "is cut short inside its header");
  auto no_header = png_of(2, 2, 1, 2, 3);
  no_header[12] = 'X';
  EXPECT_EQ(header_fault(no_header), "is a PNG without a header");
  EXPECT_EQ(header_fault("\xFF\xD8\xFF\xD9"), "is a JPEG without a size");
  EXPECT_EQ(header_fault(std::string("\xFF\xD8\xFF\xE0\0\1", 6)), "is a JPEG with a broken header");
  EXPECT_EQ(header_fault(std::string("\xFF\xD8\xFF\xE0\0\2xx", 8)), "is a JPEG with a broken header");
  EXPECT_EQ(header_fault(png_with_size(0, 5)), "says it is 0 x 5 pixels, wanted at least 1 x 1");
}

TEST(ImageHeader, LargeImagesAreRefusedBeforeMemoryIsTaken) {
  EXPECT_EQ(header_fault(png_with_size(8192, 8193)),
            "is 8192 x 8193 pixels, wanted at most 65535 a side and 64 Mi in all: make it smaller");
  EXPECT_EQ(header_fault(png_with_size(8192, 8192)), "nothing thrown");
  EXPECT_EQ(header_fault(png_with_size(65536, 1)),
            "is 65536 x 1 pixels, wanted at most 65535 a side and 64 Mi in all: make it smaller");
  EXPECT_EQ(decode_fault(png_with_size(0xFFFFFFFF, 0xFFFFFFFF)),
            "is 4294967295 x 4294967295 pixels, wanted at most 65535 a side and 64 Mi in all: make it smaller");
}

TEST(ImageDecoder, JpegColours) {
  const auto file = jpeg_of(24, 16, 200, 100, 50);
  const auto image = decode_image(bytes_of(file));
  EXPECT_EQ(image.width, 24);
  EXPECT_EQ(image.height, 16);
  ASSERT_EQ(image.pixels.size(), 24U * 16 * 3);
  EXPECT_NEAR(image.pixels[0], 200, 3);
  EXPECT_NEAR(image.pixels[1], 100, 3);
  EXPECT_NEAR(image.pixels.back(), 50, 3);
}

TEST(ImageDecoder, LargeJpegsComeOutSmallerButNotTooSmall) {
  const auto file = jpeg_of(400, 200, 200, 100, 50);
  const auto size = [&](int64_t at_least) {
    const auto image = decode_image(bytes_of(file), at_least);
    return std::vector{image.width, image.height};
  };
  EXPECT_EQ(size(201), (std::vector<int64_t>{400, 200}));
  EXPECT_EQ(size(100), (std::vector<int64_t>{200, 100}));
  EXPECT_EQ(size(51), (std::vector<int64_t>{200, 100}));
  EXPECT_EQ(size(1), (std::vector<int64_t>{50, 25}));
}

TEST(ImageDecoder, PngOfEveryKindBecomesColour) {
  const auto colour = [](const std::string& file) { return decode_image(bytes_of(file)).pixels; };
  EXPECT_EQ(colour(png_of(1, 1, 3, {1, 2, 3})), (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(colour(png_of(1, 1, 1, {77})), (std::vector<uint8_t>{77, 77, 77}));
  EXPECT_EQ(colour(png_of(1, 1, 4, {9, 9, 9, 0})), (std::vector<uint8_t>{255, 255, 255}));
  EXPECT_EQ(colour(png_of(1, 1, 4, {9, 8, 7, 255})), (std::vector<uint8_t>{9, 8, 7}));
}

TEST(ImageDecoder, PngSamplesStayAsTheyAreStored) {
  const std::string chunks[] = {"",
                                test::png_chunk("gAMA", std::string("\0\0\xb1\x8f", 4)),
                                test::png_chunk("gAMA", std::string("\0\1\x86\xa0", 4)),
                                test::png_chunk("sRGB", std::string(1, '\0')),
                                test::png_chunk("sBIT", "\4"),
                                test::png_chunk("iCCP", std::string("p\0\0none", 7))};
  const auto reds = [](const std::string& file) {
    const auto image = decode_image(bytes_of(file));
    EXPECT_EQ(image.oddity, "");
    std::vector<int> values;
    for (size_t i = 0; i < image.pixels.size(); i += 3) values.push_back(image.pixels[i]);
    return values;
  };
  for (const auto& one : chunks) {
    EXPECT_EQ(reds(png_of({.width = 4}, "\x09\x11\x19\x21", one)), (std::vector{9, 17, 25, 33}));
    EXPECT_EQ(reds(png_of({.width = 4, .bits = 16}, std::string("\x09\0\x11\x80\x19\xff\xff\xff", 8), one)),
              (std::vector{9, 17, 25, 255}));
    EXPECT_EQ(reds(png_of({.width = 3, .bits = 1}, "\xa0", one)), (std::vector{255, 0, 255}));
    EXPECT_EQ(reds(png_of({.width = 4, .bits = 2}, "\x1b", one)), (std::vector{0, 85, 170, 255}));
    EXPECT_EQ(reds(png_of({.width = 2, .bits = 4}, "\x1e", one)), (std::vector{17, 238}));
  }
}

TEST(ImageDecoder, TransparentPixelsArePutOverWhiteByTheirSamples) {
  const auto colours = [](const std::string& file) { return decode_image(bytes_of(file)).pixels; };
  EXPECT_EQ(colours(png_of(2, 1, 4, {10, 20, 30, 128, 10, 20, 30, 1})),
            (std::vector<uint8_t>{132, 137, 142, 254, 254, 254}));  // 255 - (255 - 10) * 128 / 255 and so on
  EXPECT_EQ(colours(png_of(1, 1, 2, {100, 51})), (std::vector<uint8_t>{224, 224, 224}));
  const auto transparent = [](const std::string& sample) { return test::png_chunk("tRNS", sample); };
  const std::string two(1, '\0'), grey_2 = two + '\2', grey_16 = "\x11\x22";
  EXPECT_EQ(colours(png_of({.width = 2, .bits = 2}, "\x90", transparent(grey_2))),  // samples 2 1
            (std::vector<uint8_t>{255, 255, 255, 85, 85, 85}));
  EXPECT_EQ(colours(png_of({.width = 2, .bits = 16}, "\x11\x22\x11\x23", transparent(grey_16))),
            (std::vector<uint8_t>{255, 255, 255, 17, 17, 17}));
  const auto palette = test::png_chunk("PLTE", std::string("\1\2\3\4\5\6", 6));
  EXPECT_EQ(colours(png_of({.width = 2, .bits = 8, .colour_type = 3}, std::string("\0\1", 2),
                           palette + transparent(std::string(1, '\0')))),
            (std::vector<uint8_t>{255, 255, 255, 4, 5, 6}));
}

TEST(ImageDecoder, APngWithoutItsEndIsOdd) {
  const auto png = png_of({.width = 4}, "\x09\x11\x19\x21");
  EXPECT_EQ(decode_image(bytes_of(png)).oddity, "");
  EXPECT_EQ(decode_image(bytes_of(png.substr(0, png.size() - 12))).oddity, "read beyond end of data");
}

TEST(ImageDecoder, CmykIsReadAsAdobeStoresIt) {
  std::vector<uint8_t> ink;
  for (int i = 0; i < 16 * 16; ++i) ink.insert(ink.end(), {200, 100, 255, 128});
  const auto image = decode_image(bytes_of(jpeg_of(16, 16, ink, {.channels = 4})));
  ASSERT_EQ(image.pixels.size(), 16U * 16 * 3);
  for (const auto& [colour, value] : {std::pair(0, 100), {1, 50}, {2, 128}}) {  // 200 * 128 / 255 and so on
    EXPECT_NEAR(image.pixels[static_cast<size_t>(colour)], value, 3) << colour;
  }
}

TEST(ImageDecoder, ExifSaysHowAPictureIsTurned) {
  const auto turn = [](const std::string& file) { return decode_image(bytes_of(file)).turn; };
  const Turn quarter = {.transposed = true, .rows_mirrored = true};
  const auto jpeg = jpeg_of(16, 16, 1, 2, 3);
  EXPECT_EQ(turn(jpeg), Turn());
  EXPECT_EQ(turn(test::with_exif(jpeg, test::exif_of(6))), quarter);
  EXPECT_EQ(turn(test::with_exif(test::with_exif(jpeg, test::exif_of(3)), test::exif_of(6))), quarter);  // the first
  const auto png = png_of({}, "a", test::png_chunk("eXIf", test::exif_of(6, false)));
  EXPECT_EQ(turn(png), quarter);
  auto late = png_of({}, "a");
  late.insert(late.size() - 12, test::png_chunk("eXIf", test::exif_of(6)));
  EXPECT_EQ(turn(late), quarter);
  auto damaged = png;
  damaged[damaged.find("eXIf") + 5] ^= 1;
  EXPECT_EQ(turn(damaged), Turn());
  EXPECT_EQ(decode_image(bytes_of(damaged)).oddity, "eXIf: CRC error");
}

TEST(ImageDecoder, FilesCutShortAreTold) {
  const std::string jpeg = jpeg_of(64, 64, 200, 100, 50), png = png_of(64, 64, 200, 100, 50);
  EXPECT_EQ(decode_fault(jpeg.substr(0, jpeg.size() - 20)),
            "is a JPEG that cannot be decoded (Premature end of JPEG file)");
  const auto text = decode_fault(png.substr(0, png.size() - 20));
  EXPECT_TRUE(text.starts_with("is a PNG that cannot be decoded (")) << text;
}

TEST(ImageDecoder, BadCodesAreAnErrorThoughOtherWarningsCameBefore) {
  auto jpeg = jpeg_of(64, 64, 200, 100, 50);
  jpeg.insert(jpeg.find("\xFF\xDA"), "stray");
  EXPECT_EQ(decode_image(bytes_of(jpeg)).oddity, "Corrupt JPEG data: 5 extraneous bytes before marker 0xda");
  EXPECT_EQ(decode_image(bytes_of(jpeg)).pixels, decode_image(bytes_of(jpeg_of(64, 64, 200, 100, 50))).pixels);
  EXPECT_EQ(decode_fault(jpeg.substr(0, jpeg.size() - 30) + "\xFF\xD9"),
            "is a JPEG that cannot be decoded (Corrupt JPEG data: premature end of data segment)");
}

TEST(ImageDecoder, KindsThatAreNotReadAreTold) {
  const auto changed = [](char frame, char bits) {
    auto jpeg = jpeg_of(16, 16, 1, 2, 3);
    const auto at = jpeg.find("\xFF\xC0");
    jpeg[at + 1] = frame;
    jpeg[at + 4] = bits;
    return header_fault(jpeg);
  };
  EXPECT_EQ(changed('\xC0', 12), "is a JPEG of 12 bits a sample, wanted 8: save it anew");
  EXPECT_EQ(changed('\xC3', 8),
            "is a lossless or hierarchical JPEG, wanted a baseline or progressive one: save it anew");
  EXPECT_EQ(changed('\xC9', 8), "is a JPEG with arithmetic coding, wanted Huffman coding: save it anew");
}

TEST(ImageDecoder, AChannelWithoutAScanIsAnError) {
  const auto whole = jpeg_of(16, 16, test::textured(16, 16, 3, 1), {.one_scan_a_channel = true});
  const auto last_scan = whole.rfind("\xFF\xDA");
  EXPECT_EQ(decode_fault(whole.substr(0, last_scan) + "\xFF\xD9"),
            "is a JPEG that cannot be decoded (a channel has no scan)");
  EXPECT_EQ(decode_image(bytes_of(whole)).oddity, "");
}

TEST(ImageDecoder, AProgressiveJpegWithoutItsLastScanIsOdd) {
  const auto whole = jpeg_of(16, 16, test::textured(16, 16, 3, 1), {.progressive = true});
  EXPECT_EQ(decode_image(bytes_of(whole)).oddity, "");
  EXPECT_EQ(decode_image(bytes_of(whole.substr(0, whole.rfind("\xFF\xC4")) + "\xFF\xD9")).oddity,
            "Progressive JPEG ends before its last scan");
}

TEST(ImageDecoder, APngsWarningsAreOddities) {
  auto png = png_of(8, 8, 1, 2, 3);
  png.insert(33, std::string("\0\0\0\4gAMA\0\0\xb1\x8f"
                             "badc",
                             16));  // behind the header; a checksum that is wrong
  const auto image = decode_image(bytes_of(png));
  EXPECT_EQ(image.oddity, "gAMA: CRC error");
  EXPECT_EQ(image.pixels, decode_image(bytes_of(png_of(8, 8, 1, 2, 3))).pixels);
}

TEST(ImageDecoder, TooManyScansAreAnError) {
  auto jpeg = jpeg_of(16, 16, 1, 2, 3);
  const auto frame = jpeg.find("\xFF\xC0"), scan = jpeg.find("\xFF\xDA");
  jpeg[frame + 1] = '\xC2';
  const std::string empty_scan("\xFF\xDA\0\x0c\3\1\0\2\x11\3\x11\0\0\0", 14);  // DC of all channels
  std::string scans;
  for (int i = 0; i < 600; ++i) scans += empty_scan + std::string(6, '\0');
  EXPECT_EQ(decode_fault(jpeg.substr(0, scan) + scans + "\xFF\xD9"),
            "is a JPEG that cannot be decoded (more than 500 scans)");
}

TEST(OddSamples, CountOnceAndGiveTheFirst) {
  OddSamples odd;
  EXPECT_EQ(odd.example(), "");
  odd.add(7, "seven");
  odd.add(3, "three");
  odd.add(7, "seven");
  EXPECT_EQ(odd.count(), 2);
  EXPECT_EQ(odd.indices(), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(odd.example(), "three");
}

TEST(ImageDecoder, DamagedBytesNeverCrash) {
  CounterRng rng(1, 1);
  for (const auto& whole : {jpeg_of(33, 17, 200, 100, 50), png_of(33, 17, 200, 100, 50)}) {
    int refused = 0;
    for (int round = 0; round < 1500; ++round) {
      auto damaged = whole;
      for (int i = 0; i < 3; ++i) damaged[rng.next() % damaged.size()] = static_cast<char>(rng.next());
      if (round % 4 == 0) damaged.resize(rng.next() % damaged.size());
      try {
        const auto image = decode_image(bytes_of(damaged), 8);
        EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.width * image.height * 3));
      } catch (const DataError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 100);
  }
}

TEST(PngEncoder, IsTheDecodersInverse) {
  for (const int64_t channels : {1, 3}) {
    std::vector<uint8_t> planes(static_cast<size_t>(channels * 5 * 7));
    for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<uint8_t>(i * 37);
    const auto file = encode_png(planes, {channels, 5, 7});
    const auto image = decode_image(test::bytes_of(file));
    ASSERT_EQ(image.pixels.size(), 3u * 5 * 7);
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      EXPECT_EQ(image.pixels[i], planes[(channels == 1 ? 0 : i % 3) * 35 + i / 3]);
    }
  }
  const std::vector<uint8_t> planes(10);
  EXPECT_EQ(test::text_of<c10::ValueError>([&] {
              encode_png(planes, {2, 1, 5});
            }),
            "png: channels is 2, wanted 1 or 3");
  EXPECT_EQ(test::text_of<c10::ValueError>([&] {
              encode_png(planes, {3, 1, 5});
            }),
            "png: planes have 10 bytes, wanted 15");
}

}  // namespace
}  // namespace tandem::data
