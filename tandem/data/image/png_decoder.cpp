#include <png.h>

#include "tandem/data/image/image_codecs.h"

namespace tandem::data {
namespace {

/// libpng's simplified API: it checks all sizes itself and reports errors by return value.
struct Reader {
  png_image image{};
  Reader() { image.version = PNG_IMAGE_VERSION; }
  ~Reader() { png_image_free(&image); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
};

}  // namespace

Image decode_png(std::span<const std::byte> file) {
  Reader reader;
  if (!png_image_begin_read_from_memory(&reader.image, file.data(), file.size())) {
    fail_to_decode("PNG", reader.image.message);
  }
  reader.image.format = PNG_FORMAT_RGB;
  auto image = blank_image(reader.image.width, reader.image.height);
  const png_color white = {255, 255, 255};
  if (!png_image_finish_read(&reader.image, &white, image.pixels.data(), 0, nullptr)) {
    fail_to_decode("PNG", reader.image.message);
  }
  if (PNG_IMAGE_FAILED(reader.image) || reader.image.warning_or_error != 0) image.oddity = reader.image.message;
  return image;
}

}  // namespace tandem::data
