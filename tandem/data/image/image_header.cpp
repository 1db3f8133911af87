#include "tandem/data/image/image_decoder.h"

#include <algorithm>
#include <array>
#include <string>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::array<uint8_t, 8> kPng = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr std::array<uint8_t, 3> kJpeg = {0xFF, 0xD8, 0xFF};

template <size_t N>
bool begins_with(Bytes file, const std::array<uint8_t, N>& magic) {
  return file.size() >= N && std::equal(magic.begin(), magic.end(), reinterpret_cast<const uint8_t*>(file.data()));
}

[[noreturn]] void fail_cut() { throw DataError("is cut short inside its header"); }

int64_t big_endian(Bytes file, size_t offset, size_t count) {
  if (offset + count > file.size()) fail_cut();
  int64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = (value << 8) | std::to_integer<int64_t>(file[offset + i]);
  return value;
}

ImageHeader checked(ImageFormat format, int64_t width, int64_t height) {
  const std::string size = std::to_string(width) + " x " + std::to_string(height) + " pixels";
  if (width < 1 || height < 1) throw DataError("says it is " + size + ", wanted at least 1 x 1");
  if (std::max(width, height) > kMaxSide || width * height > kMaxPixels) {
    throw DataError("is " + size + ", wanted at most 65535 a side and 64 Mi in all", "make it smaller");
  }
  return {format, width, height};
}

ImageHeader png_header(Bytes file) {
  constexpr int64_t kHeaderChunk = 0x49484452;  // "IHDR", always the first
  if (big_endian(file, 12, 4) != kHeaderChunk) throw DataError("is a PNG without a header");
  return checked(ImageFormat::png, big_endian(file, 16, 4), big_endian(file, 20, 4));
}

bool is_frame(int64_t marker) {  // SOF0..SOF15 without DHT, JPG and DAC, which share the range
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// Accepts baseline, extended and progressive JPEGs with Huffman coding and 8 bits: those that can be decoded and in
/// which damage is detected.
void check_kind(int64_t frame, int64_t bits) {
  constexpr const char* kRemedy = "save it anew";
  if (frame >= 0xC9) throw DataError("is a JPEG with arithmetic coding, wanted Huffman coding", kRemedy);
  if (frame > 0xC2)
    throw DataError("is a lossless or hierarchical JPEG, wanted a baseline or progressive one", kRemedy);
  if (bits != 8) throw DataError("is a JPEG of " + std::to_string(bits) + " bits a sample, wanted 8", kRemedy);
}

/// Steps from segment to segment; each is at least two bytes long, so this ends.
ImageHeader jpeg_header(Bytes file) {
  for (size_t at = 2;;) {
    if (big_endian(file, at, 1) != 0xFF) throw DataError("is a JPEG with a broken header");
    const int64_t marker = big_endian(file, at + 1, 1);
    if (marker == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    if (is_frame(marker)) {
      const int64_t components = big_endian(file, at + 9, 1);
      if (components != 1 && components != 3 && components != 4) {
        throw DataError("is a JPEG of " + std::to_string(components) + " channels, wanted 1, 3 or 4",
                        "save it as grey or RGB");
      }
      check_kind(marker, big_endian(file, at + 4, 1));
      return checked(ImageFormat::jpeg, big_endian(file, at + 7, 2), big_endian(file, at + 5, 2));
    }
    if (marker == 0xD9 || marker == 0xDA) throw DataError("is a JPEG without a size");
    const int64_t length = big_endian(file, at + 2, 2);
    if (length < 2) throw DataError("is a JPEG with a broken header");
    at += 2 + static_cast<size_t>(length);
  }
}

}  // namespace

bool is_image(Bytes file) { return begins_with(file, kPng) || begins_with(file, kJpeg); }

ImageHeader read_image_header(Bytes file) {
  if (file.empty()) throw DataError("is empty");
  if (begins_with(file, kPng)) return png_header(file);
  if (begins_with(file, kJpeg)) return jpeg_header(file);
  throw DataError("is neither JPEG nor PNG");
}

}  // namespace tandem::data
