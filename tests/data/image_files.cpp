#include "tests/data/image_files.h"

#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>

namespace tandem::test {
namespace {

std::vector<uint8_t> flat(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < width * height; ++i) pixels.insert(pixels.end(), {red, green, blue});
  return pixels;
}

}  // namespace

std::string jpeg_of(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  const auto pixels = flat(width, height, red, green, blue);
  tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long length = 0;
  EXPECT_EQ(tjCompress2(encoder, pixels.data(), width, 0, height, TJPF_RGB, &bytes, &length, TJSAMP_420, 95, 0), 0);
  std::string file(reinterpret_cast<const char*>(bytes), length);
  tjFree(bytes);
  tjDestroy(encoder);
  return file;
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

}  // namespace tandem::test
