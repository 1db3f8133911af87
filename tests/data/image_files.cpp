#include "tests/data/image_files.h"

#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdio>  // before jpeglib.h, which wants it
#include <cstdlib>

#include <jpeglib.h>
#include <zlib.h>

#include "tandem/base/rng.h"

namespace tandem::test {
namespace {

std::string big_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::vector<uint8_t> flat(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < width * height; ++i) pixels.insert(pixels.end(), {red, green, blue});
  return pixels;
}

}  // namespace

std::string jpeg_of(int width, int height, const std::vector<uint8_t>& pixels, const JpegForm& form) {
  jpeg_error_mgr faults;
  jpeg_compress_struct info;
  info.err = jpeg_std_error(&faults);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long length = 0;
  jpeg_mem_dest(&info, &bytes, &length);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = form.channels;
  info.in_color_space = form.channels == 1 ? JCS_GRAYSCALE : form.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  info.optimize_coding = form.optimised ? TRUE : FALSE;
  info.arith_code = form.arithmetic ? TRUE : FALSE;
  info.restart_interval = static_cast<unsigned>(form.restart);
  if (form.progressive) jpeg_simple_progression(&info);
  const jpeg_scan_info scans[] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (form.one_scan_a_channel) {
    info.scan_info = scans;
    info.num_scans = form.channels;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPLE*>(pixels.data()) + size_t{info.next_scanline} * width * form.channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<const char*>(bytes), length);
  std::free(bytes);
  return file;
}

std::string jpeg_of(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  return jpeg_of(width, height, flat(width, height, red, green, blue));
}

std::string png_of(int width, int height, int channels, const std::vector<uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  const int formats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  image.format = static_cast<png_uint_32>(formats[channels - 1]);
  png_alloc_size_t length = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(length, '\0');
  EXPECT_TRUE(png_image_write_to_memory(&image, file.data(), &length, 0, pixels.data(), 0, nullptr)) << image.message;
  file.resize(length);
  return file;
}

std::string png_of(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  return png_of(width, height, 3, flat(width, height, red, green, blue));
}

std::string png_chunk(const std::string& kind, const std::string& data) {
  const auto body = kind + data;
  return big_endian(data.size(), 4) + body +
         big_endian(crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())), 4);
}

std::string png_of(const PngForm& form, const std::string& rows, const std::string& chunks) {
  std::string lines;
  const auto row_bytes = rows.size() / form.height;
  for (size_t y = 0; y < form.height; ++y) lines += '\0' + rows.substr(y * row_bytes, row_bytes);
  std::string packed(compressBound(lines.size()), '\0');
  auto length = static_cast<uLongf>(packed.size());
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &length, reinterpret_cast<const Bytef*>(lines.data()),
                     lines.size()),
            Z_OK);
  packed.resize(length);
  const auto header = big_endian(form.width, 4) + big_endian(form.height, 4) + static_cast<char>(form.bits) +
                      static_cast<char>(form.colour_type) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + chunks + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

std::string exif_of(int orientation, bool is_big_endian) {
  const auto number = [&](uint64_t value, int bytes) {
    auto text = big_endian(value, bytes);
    if (!is_big_endian) std::ranges::reverse(text);
    return text;
  };
  return (is_big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(1, 2) + number(0x112, 2) + number(3, 2) +
         number(1, 4) + number(static_cast<uint64_t>(orientation), 2) + number(0, 2) + number(0, 4);
}

std::string with_exif(std::string jpeg, const std::string& exif) {
  const auto data = std::string("Exif\0\0", 6) + exif;
  return jpeg.insert(2, "\xFF\xE1" + big_endian(data.size() + 2, 2) + data);
}

std::vector<uint8_t> textured(int width, int height, int channels, uint64_t seed) {
  CounterRng rng(seed, 1);
  const double a = rng.uniform(0.05, 0.3), b = rng.uniform(0.05, 0.3);
  std::vector<uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double shape = 128 + 70 * std::sin(a * x + c) * std::cos(b * y - c) + rng.uniform(-30, 30);
        pixels.push_back(static_cast<uint8_t>(shape));
      }
    }
  }
  return pixels;
}

}  // namespace tandem::test
