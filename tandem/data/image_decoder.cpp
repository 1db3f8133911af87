#include "tandem/data/image_decoder.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

using Bytes = std::span<const std::byte>;

struct CloseDecoder {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};

[[noreturn]] void fail(const char* format, const char* reason) {
  throw DataError(std::string("is a ") + format + " that cannot be decoded (" + reason + ")");
}

Image blank(int64_t width, int64_t height) {
  // The libraries read the header anew: what they found must keep the same bounds.
  if (width < 1 || height < 1 || height > kMaxPixels / width) throw DataError("has two headers that differ");
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
}

/// The smallest of 1, 1/2, 1/4, 1/8 that leaves both sides at least `at_least` long.
tjscalingfactor scale_for(int width, int height, int64_t at_least) {
  int denominator = 1;
  while (denominator < 8 && std::min(width, height) / (denominator * 2) >= at_least) denominator *= 2;
  return {1, denominator};
}

Image decode_jpeg(Bytes file, int64_t at_least) {
  const std::unique_ptr<void, CloseDecoder> decoder(tjInitDecompress());
  if (!decoder) throw std::bad_alloc();
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  int width = 0, height = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(decoder.get(), bytes, file.size(), &width, &height, &subsampling, &colours) != 0) {
    fail("JPEG", tjGetErrorStr2(decoder.get()));
  }
  const auto scale = scale_for(width, height, at_least);
  width = TJSCALED(width, scale);
  height = TJSCALED(height, scale);
  Image image = blank(width, height);
  // TJFLAG_LIMITSCANS: a few bytes of progressive JPEG can otherwise ask for hours of work.
  const int status = tjDecompress2(decoder.get(), bytes, file.size(), image.pixels.data(), width, 0, height, TJPF_RGB,
                                   TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  if (status != 0) {
    // Harmless oddities are warnings too; the end that is missing is the one that loses pixels.
    const std::string_view reason = tjGetErrorStr2(decoder.get());
    const bool lost = tjGetErrorCode(decoder.get()) == TJERR_FATAL || reason.find("Premature") != reason.npos;
    if (lost) fail("JPEG", tjGetErrorStr2(decoder.get()));
  }
  return image;
}

/// libpng's simple reader: it checks all sizes itself and reports by return value.
struct PngReader {
  png_image image{};
  PngReader() { image.version = PNG_IMAGE_VERSION; }
  ~PngReader() { png_image_free(&image); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
};

Image decode_png(Bytes file) {
  PngReader reader;
  if (!png_image_begin_read_from_memory(&reader.image, file.data(), file.size())) fail("PNG", reader.image.message);
  reader.image.format = PNG_FORMAT_RGB;
  Image image = blank(reader.image.width, reader.image.height);
  const png_color white = {255, 255, 255};
  if (!png_image_finish_read(&reader.image, &white, image.pixels.data(), 0, nullptr)) {
    fail("PNG", reader.image.message);
  }
  return image;
}

}  // namespace

Image decode_image(Bytes file, int64_t at_least) {
  const auto header = read_image_header(file);
  return header.format == ImageFormat::jpeg ? decode_jpeg(file, at_least) : decode_png(file);
}

}  // namespace tandem::data
