#include "tandem/data/image/image_decoder.h"

#include <string>

#include "tandem/base/error.h"
#include "tandem/data/image/image_codecs.h"

namespace tandem::data {

Image blank_image(int64_t width, int64_t height) {
  if (width < 1 || height < 1 || height > kMaxPixels / width) throw DataError("has two headers that differ");
  Image image;
  image.width = width;
  image.height = height;
  image.pixels.resize(static_cast<size_t>(width * height * 3));
  return image;
}

void fail_to_decode(const char* format, const char* reason) {
  throw DataError(std::string("is a ") + format + " that cannot be decoded (" + reason + ")");
}

Image decode_image(std::span<const std::byte> file, int64_t at_least) {
  const auto header = read_image_header(file);
  return header.format == ImageFormat::jpeg ? decode_jpeg(file, at_least) : decode_png(file);
}

}  // namespace tandem::data
