#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "tandem/data/image/image_codecs.h"

namespace tandem::data {
namespace {

/// Receives libpng's messages. Errors leave libpng by longjmp.
struct PngListener {
  std::jmp_buf out;
  std::array<char, 200> fault{}, oddity{};  // empty: none
};

void keep(std::array<char, 200>& text, png_const_charp message) {
  if (text[0] == '\0') std::snprintf(text.data(), text.size(), "%s", message);
}

[[noreturn]] void on_error(png_structp codec, png_const_charp message) {
  auto& listener = *static_cast<PngListener*>(png_get_error_ptr(codec));
  keep(listener.fault, message);
  std::longjmp(listener.out, 1);
}

void on_warning(png_structp codec, png_const_charp message) {
  keep(static_cast<PngListener*>(png_get_error_ptr(codec))->oddity, message);
}

void read_bytes(png_structp codec, png_bytep into, size_t count) {
  auto& rest = *static_cast<std::span<const std::byte>*>(png_get_io_ptr(codec));
  if (count > rest.size()) png_error(codec, "read beyond end of data");
  std::memcpy(into, rest.data(), count);
  rest = rest.subspan(count);
}

/// One of the passes in which the pixels of a file come: those of every step_x-th column and step_y-th row.
struct Pass {
  int64_t x, y, step_x, step_y;
};

/// Puts a pixel over white. Exact, as Pillow's alpha_composite().
void put_over_white(const uint8_t* colours, uint8_t alpha, uint8_t* pixel) {
  for (int i = 0; i < 3; ++i) pixel[i] = static_cast<uint8_t>((colours[i] * alpha + 255 * (255 - alpha) + 127) / 255);
}

class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> file)
      : rest_(file), codec_(png_create_read_struct(PNG_LIBPNG_VER_STRING, &listener_, on_error, on_warning)) {
    info_ = codec_ == nullptr ? nullptr : png_create_info_struct(codec_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&codec_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngReader() { png_destroy_read_struct(&codec_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// Reads up to the pixels.
  Image begin() {
    guarded([&] {
      png_set_read_fn(codec_, &rest_, read_bytes);
      png_set_benign_errors(codec_, 1);
      // No chunk that would change the samples is read.
      png_set_keep_unknown_chunks(codec_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_keep_unknown_chunks(codec_, PNG_HANDLE_CHUNK_AS_DEFAULT, reinterpret_cast<png_const_bytep>("eXIf"), 1);
      png_read_info(codec_, info_);
      png_set_expand(codec_);
      png_set_strip_16(codec_);
      png_set_gray_to_rgb(codec_);
      png_read_update_info(codec_, info_);
    });
    return blank_image(png_get_image_width(codec_, info_), png_get_image_height(codec_, info_));
  }

  void read(Image& image) {
    std::vector<uint8_t> row(png_get_rowbytes(codec_, info_));
    const bool is_interlaced = png_get_interlace_type(codec_, info_) == PNG_INTERLACE_ADAM7;
    guarded([&] {
      if (!is_interlaced) read_pass({.x = 0, .y = 0, .step_x = 1, .step_y = 1}, image, row.data());
      for (int i = 0; is_interlaced && i < PNG_INTERLACE_ADAM7_PASSES; ++i) {
        read_pass({PNG_PASS_START_COL(i), PNG_PASS_START_ROW(i), PNG_PASS_COL_OFFSET(i), PNG_PASS_ROW_OFFSET(i)}, image,
                  row.data());
      }
    });
    if (!succeeds([&] { png_read_end(codec_, info_); })) keep(listener_.oddity, listener_.fault.data());
    image.turn = turn();
    image.oddity = listener_.oddity.data();
  }

 private:
  /// Runs calls of libpng. `step` must not hold an object with a destructor, because longjmp would skip it.
  template <class Step>
  bool succeeds(Step step) {
    if (setjmp(listener_.out) != 0) return false;
    step();
    return true;
  }

  template <class Step>
  void guarded(Step step) {
    if (!succeeds(step)) fail_to_decode("PNG", listener_.fault.data());
  }

  void read_pass(const Pass& pass, Image& image, uint8_t* row) {
    const int channels = png_get_channels(codec_, info_);
    for (int64_t y = pass.y; pass.x < image.width && y < image.height; y += pass.step_y) {
      png_read_row(codec_, row, nullptr);
      const auto* from = row;
      for (int64_t x = pass.x; x < image.width; x += pass.step_x, from += channels) {
        put_over_white(from, channels == 4 ? from[3] : 255, image.pixels.data() + (y * image.width + x) * 3);
      }
    }
  }

  Turn turn() {
    png_uint_32 size = 0;
    png_bytep exif = nullptr;
    if (png_get_eXIf_1(codec_, info_, &size, &exif) == 0) return {};
    return exif_turn(std::as_bytes(std::span(exif, size)));
  }

  PngListener listener_{};
  std::span<const std::byte> rest_;
  png_structp codec_;
  png_infop info_;
};

}  // namespace

Image decode_png(std::span<const std::byte> file) {
  PngReader reader(file);
  auto image = reader.begin();
  reader.read(image);
  return image;
}

}  // namespace tandem::data
