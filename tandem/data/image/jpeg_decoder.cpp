#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which wants it

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "tandem/data/image/image_codecs.h"

namespace tandem::data {
namespace {

/// Limits the work: a few bytes of progressive JPEG can ask for hours of decoding.
constexpr int kMostScans = 500;

/// Receives libjpeg's messages. Errors, and warnings about lost pixels, leave libjpeg by longjmp.
struct JpegListener {
  jpeg_error_mgr faults;  // must be first: libjpeg passes a pointer to it
  jpeg_progress_mgr progress;
  std::jmp_buf out;
  std::array<char, JMSG_LENGTH_MAX> fault{}, oddity{};  // empty: none
};

JpegListener& listener_of(j_common_ptr codec) { return *reinterpret_cast<JpegListener*>(codec->err); }

/// True for warnings about files whose pixels are all there.
bool is_harmless(int message) {
  switch (message) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
      return true;
    default:
      return false;
  }
}

[[noreturn]] void on_error(j_common_ptr codec) {
  auto& listener = listener_of(codec);
  listener.faults.format_message(codec, listener.fault.data());
  std::longjmp(listener.out, 1);
}

/// `level`: -1 for a warning, 0 and above for remarks.
void on_message(j_common_ptr codec, int level) {
  auto& listener = listener_of(codec);
  if (level >= 0) return;
  if (!is_harmless(listener.faults.msg_code)) on_error(codec);
  if (listener.oddity[0] == '\0') listener.faults.format_message(codec, listener.oddity.data());
}

void on_progress(j_common_ptr codec) {
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= kMostScans) return;
  auto& listener = listener_of(codec);
  std::snprintf(listener.fault.data(), listener.fault.size(), "more than %d scans", kMostScans);
  std::longjmp(listener.out, 1);
}

constexpr int kExifMarker = JPEG_APP0 + 1;

/// Asks for what the first EXIF segment says, of the segments that libjpeg has kept.
Turn turn_of(const jpeg_decompress_struct& codec) {
  constexpr std::string_view kName("Exif\0\0", 6);
  for (const auto* segment = codec.marker_list; segment != nullptr; segment = segment->next) {
    const auto bytes = std::as_bytes(std::span(segment->data, segment->data_length));
    const std::string_view text(reinterpret_cast<const char*>(segment->data), segment->data_length);
    if (text.starts_with(kName)) return exif_turn(bytes.subspan(kName.size()));
  }
  return {};
}

/// `ink`: samples of CMYK as Adobe stores them, 255 for none. Source: Pillow, cmyk2rgb() of Convert.c.
void cmyk_to_rgb(std::span<const uint8_t> ink, uint8_t* pixels) {
  for (size_t at = 0; at < ink.size(); at += 4) {
    const int black = ink[at + 3];
    for (size_t colour = 0; colour < 3; ++colour) {
      *pixels++ = static_cast<uint8_t>(black - ((255 - ink[at + colour]) * black + 127) / 255);
    }
  }
}

class JpegReader {
 public:
  JpegReader() {
    codec_.err = jpeg_std_error(&listener_.faults);
    listener_.faults.error_exit = on_error;
    listener_.faults.emit_message = on_message;
    listener_.progress.progress_monitor = on_progress;
  }
  ~JpegReader() { jpeg_destroy_decompress(&codec_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  /// Reads the header. The pixels will be decoded at the smallest of the scales 1, 1/2, 1/4, 1/8 at which both sides
  /// are still `at_least` long.
  Image begin(std::span<const std::byte> file, int64_t at_least) {
    guarded([&] {
      jpeg_create_decompress(&codec_);
      codec_.progress = &listener_.progress;
      jpeg_save_markers(&codec_, kExifMarker, 0xFFFF);
      jpeg_mem_src(&codec_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
      jpeg_read_header(&codec_, TRUE);
      const int64_t side = std::min(codec_.image_width, codec_.image_height);
      codec_.scale_num = codec_.scale_denom = 1;
      while (codec_.scale_denom < 8 && side / (codec_.scale_denom * 2) >= at_least) codec_.scale_denom *= 2;
      codec_.out_color_space = codec_.num_components == 4 ? JCS_CMYK : JCS_RGB;
      jpeg_calc_output_dimensions(&codec_);
    });
    auto image = blank_image(codec_.output_width, codec_.output_height);
    const auto spare = [&](JDIMENSION scaled, JDIMENSION whole) {
      return scaled - static_cast<double>(whole) / codec_.scale_denom;
    };
    image.spare_width = spare(codec_.output_width, codec_.image_width);
    image.spare_height = spare(codec_.output_height, codec_.image_height);
    image.turn = turn_of(codec_);
    return image;
  }

  void read(Image& image) {
    const auto row_bytes = static_cast<size_t>(image.width) * 3;
    std::vector<uint8_t> ink(codec_.out_color_space == JCS_CMYK ? static_cast<size_t>(image.width) * 4 : 0);
    auto* const pixels = image.pixels.data();
    guarded([&] {
      jpeg_start_decompress(&codec_);
      while (codec_.output_scanline < codec_.output_height) {
        auto* const row = pixels + codec_.output_scanline * row_bytes;
        auto* into = ink.empty() ? row : ink.data();
        jpeg_read_scanlines(&codec_, &into, 1);
        if (!ink.empty()) cmyk_to_rgb(ink, row);
      }
    });
    check_scans();
    guarded([&] { jpeg_finish_decompress(&codec_); });
    image.oddity = listener_.oddity.data();
  }

 private:
  /// Runs calls of libjpeg. `step` must not hold an object with a destructor, because longjmp would skip it.
  template <class Step>
  void guarded(Step step) {
    if (setjmp(listener_.out) != 0) fail_to_decode("JPEG", listener_.fault.data());
    step();
  }

  /// Checks that all scans came: a file may end after any of them, and libjpeg takes missing coefficients for 0.
  void check_scans() {
    for (int i = 0; i < codec_.num_components; ++i) {
      if (codec_.comp_info[i].quant_table == nullptr) fail_to_decode("JPEG", "a channel has no scan");
      if (codec_.coef_bits == nullptr) continue;
      const auto& bits = codec_.coef_bits[i];  // per coefficient: number of low bits that are missing; -1: all
      if (bits[0] < 0) fail_to_decode("JPEG", "a channel has no scan");
      const bool is_rough = std::any_of(bits, bits + DCTSIZE2, [](int missing) { return missing != 0; });
      if (is_rough && listener_.oddity[0] == '\0') {
        std::snprintf(listener_.oddity.data(), listener_.oddity.size(), "Progressive JPEG ends before its last scan");
      }
    }
  }

  JpegListener listener_{};
  jpeg_decompress_struct codec_{};
};

}  // namespace

Image decode_jpeg(std::span<const std::byte> file, int64_t at_least) {
  JpegReader reader;
  auto image = reader.begin(file, at_least);
  reader.read(image);
  return image;
}

}  // namespace tandem::data
