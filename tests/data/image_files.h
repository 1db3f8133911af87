#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::test {

/// How libjpeg is to write.
struct JpegForm {
  int channels = 3;  // 1 grey, 3 RGB written as YCbCr, 4 CMYK
  bool progressive = false, optimised = false, arithmetic = false, one_scan_a_channel = false;
  int restart = 0;  // MCUs between two restart markers; 0: none
};

/// A JPEG of interleaved pixels, quality 95, chroma at half the size.
std::string jpeg_of(int width, int height, const std::vector<uint8_t>& pixels, const JpegForm& form = {});

/// An image of one colour, as a file's bytes.
std::string jpeg_of(int width, int height, uint8_t red, uint8_t green, uint8_t blue);

/// channels: 1 grey, 2 grey and alpha, 3 red green blue, 4 with alpha. pixels: interleaved, 8 bits.
std::string png_of(int width, int height, int channels, const std::vector<uint8_t>& pixels);
std::string png_of(int width, int height, uint8_t red, uint8_t green, uint8_t blue);

/// A PNG of rows as they are packed, each without its filter's byte, and of chunks before them.
struct PngForm {
  uint32_t width = 1, height = 1;
  int bits = 8, colour_type = 0;
};
std::string png_of(const PngForm& form, const std::string& rows, const std::string& chunks = "");
std::string png_chunk(const std::string& kind, const std::string& data);

/// EXIF data with an orientation, and a JPEG with such data in it.
std::string exif_of(int orientation, bool is_big_endian = true);
std::string with_exif(std::string jpeg, const std::string& exif);

/// Smooth shapes with noise on them: width * height * channels bytes, the same for the same seed.
std::vector<uint8_t> textured(int width, int height, int channels, uint64_t seed);

}  // namespace tandem::test
