#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/data/image/image_files.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// Whatever is wrong with a JPEG, nobody trains on half of it without a word.
namespace tandem::data {
namespace {

using test::jpeg_of;
using test::JpegForm;

constexpr int kEach = 20;  // files of a kind

/// Offsets of the segments between SOI and the image's first entropy-coded byte.
struct Segment {
  uint8_t marker;
  size_t begin, length;  // with the two bytes of the marker
};

std::vector<Segment> segments_of(const std::string& jpeg) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(jpeg.at(at)); };
  std::vector<Segment> segments;
  for (size_t at = 2; segments.empty() || segments.back().marker != 0xDA; at += segments.back().length) {
    segments.push_back({byte(at + 1), at, 2U + byte(at + 2) * 256U + byte(at + 3)});
  }
  return segments;
}

const Segment& find(const std::vector<Segment>& segments, std::initializer_list<uint8_t> markers) {
  return *std::ranges::find_if(
      segments, [&](const Segment& segment) { return std::ranges::find(markers, segment.marker) != markers.end(); });
}

size_t scan_begin(const std::string& jpeg) {
  const auto last = segments_of(jpeg).back();
  return last.begin + last.length;
}

void set_size(std::string& jpeg, int width, int height) {
  const auto frame = find(segments_of(jpeg), {0xC0, 0xC1, 0xC2}).begin;
  for (const auto& [at, value] : {std::pair(frame + 5, height), {frame + 7, width}}) {
    jpeg[at] = static_cast<char>(value >> 8);
    jpeg[at + 1] = static_cast<char>(value & 0xFF);
  }
}

std::vector<size_t> restarts_of(const std::string& jpeg) {
  std::vector<size_t> found;
  for (size_t at = scan_begin(jpeg); at + 1 < jpeg.size(); ++at) {
    if (jpeg[at] == '\xFF' && (jpeg[at + 1] & 0xF8) == 0xD0) found.push_back(at);
  }
  return found;
}

std::string cut(std::string jpeg, int i, CounterRng&) { return jpeg.substr(0, jpeg.size() * (5 * i + 4) / 100); }

/// Cut as by a program that closes what it writes.
std::string cut_and_closed(std::string jpeg, int i, CounterRng&) {
  const auto begin = scan_begin(jpeg);
  return jpeg.substr(0, begin + (jpeg.size() - begin) * (i + 1) / (kEach + 2)) + "\xFF\xD9";
}

std::string bits_flipped(std::string jpeg, int, CounterRng& rng) {
  const auto begin = scan_begin(jpeg);
  for (int flips = 0; flips < 24; ++flips) {
    jpeg[begin + rng.next() % (jpeg.size() - 2 - begin)] ^= static_cast<char>(1 << rng.next() % 8);
  }
  return jpeg;
}

std::string run_zeroed(std::string jpeg, int i, CounterRng& rng) {
  const auto begin = scan_begin(jpeg);
  const size_t length = 40 + 10 * static_cast<size_t>(i);
  const auto at = begin + rng.next() % (jpeg.size() - 2 - begin - length);
  std::fill_n(jpeg.begin() + static_cast<int64_t>(at), length, '\0');
  return jpeg;
}

std::string size_changed(std::string jpeg, int i, CounterRng&) {
  const std::pair<int, int> sizes[] = {{8192, 8192}, {80, 64}, {64, 80}, {48, 64}, {64, 32}, {128, 48}, {16, 16}};
  const auto [width, height] = sizes[i % 7];
  set_size(jpeg, width, height);
  return jpeg;
}

std::string end_missing(std::string jpeg, int i, CounterRng&) { return jpeg.substr(0, jpeg.size() - 1 - i % 2); }

std::string tables_missing(std::string jpeg, int i, CounterRng&) {
  const auto table = find(segments_of(jpeg), {static_cast<uint8_t>(i % 2 == 0 ? 0xC4 : 0xDB)});
  return jpeg.erase(table.begin, table.length);
}

std::string begun_twice(std::string jpeg, int i, CounterRng& rng) {
  const auto segments = segments_of(jpeg);
  const size_t places[] = {2, segments[rng.next() % segments.size()].begin, scan_begin(jpeg) + 200};
  return jpeg.insert(places[i % 3], "\xFF\xD8");
}

std::string garbage_between_markers(std::string jpeg, int i, CounterRng& rng) {
  const auto segments = segments_of(jpeg);
  std::string garbage;
  for (int k = 0; k < 3 + i; ++k) garbage += static_cast<char>(rng.next() % 255);  // never 0xFF
  return jpeg.insert(i % 4 == 0 ? jpeg.size() - 2 : segments[static_cast<size_t>(i) % segments.size()].begin, garbage);
}

std::string restarts_wrong(std::string jpeg, int i, CounterRng& rng) {
  const auto places = restarts_of(jpeg);
  const auto at = places[rng.next() % places.size()];
  if (i % 3 == 0) return jpeg.erase(at, 2);
  if (i % 3 == 1) return jpeg.insert(at, "\xFF\xD3");
  jpeg[at + 1] ^= static_cast<char>(1 + i % 7);
  return jpeg;
}

/// Bytes of the frame's header that say what kind of JPEG it is.
std::string kind_changed(std::string jpeg, int i, CounterRng&) {
  const auto frame = find(segments_of(jpeg), {0xC0, 0xC1, 0xC2, 0xC9}).begin;
  const char kinds[] = {'\xC3', '\xC5', '\xC7', '\xC9', '\xCA', '\xC2', '\xCB'};
  if (i % 2 == 0) {
    jpeg[frame + 4] = static_cast<char>(i % 4 == 0 ? 12 : 16);  // bits a sample
  } else {
    jpeg[frame + 1] = kinds[i / 2 % 7];
  }
  return jpeg;
}

enum class Verdict { refused, told, whole, silent };

class DamagedJpeg : public testing::Test {
 protected:
  ImageFiles open(const std::string& jpeg) {
    const auto path = folder_ / ("image_" + std::to_string(++count_) + ".jpg");
    test::spill(path, jpeg);
    return ImageFiles({.files = {{path, 0}}, .num_classes = 1, .form = {.height = 64, .width = 64}});
  }
  std::vector<uint8_t> pixels_of(const ImageFiles& images) {
    std::vector<uint8_t> pixels(3 * 64 * 64);
    images.read(0, pixels);
    return pixels;
  }

  Verdict verdict(const std::string& damaged, const std::vector<uint8_t>& whole) {
    const auto images = open(damaged);
    const auto name = "image '" + (folder_ / ("image_" + std::to_string(count_) + ".jpg")).string() + "'";
    try {
      const auto pixels = pixels_of(images);
      if (images.odd_samples().count() > 0) {
        EXPECT_TRUE(images.odd_samples().example().starts_with(name + ": ")) << images.odd_samples().example();
        return Verdict::told;
      }
      return pixels == whole ? Verdict::whole : Verdict::silent;
    } catch (const DataError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(name + " ")) << error.what();
      return Verdict::refused;
    }
  }

  /// How many of kEach files fare how.
  std::map<Verdict, int> fates(std::string (*damage)(std::string, int, CounterRng&), const JpegForm& form) {
    std::map<Verdict, int> counts;
    for (int i = 0; i < kEach; ++i) {
      CounterRng rng(7, static_cast<uint64_t>(i));
      const auto jpeg = jpeg_of(64, 64, test::textured(64, 64, form.channels, static_cast<uint64_t>(i)), form);
      const auto whole = open(jpeg);
      const auto pixels = pixels_of(whole);
      EXPECT_EQ(whole.odd_samples().count(), 0);
      ++counts[verdict(damage(jpeg, i, rng), pixels)];
    }
    EXPECT_EQ(counts[Verdict::silent], 0);
    return counts;
  }

  test::TemporaryFolder folder_;
  int count_ = 0;
};

TEST_F(DamagedJpeg, CutFilesAreRefused) {
  EXPECT_EQ(fates(cut, {.channels = 4})[Verdict::refused], kEach);
  EXPECT_EQ(fates(cut, {})[Verdict::refused], kEach);
  EXPECT_EQ(fates(cut, {.progressive = true})[Verdict::refused], kEach);
  EXPECT_EQ(fates(cut, {.one_scan_a_channel = true})[Verdict::refused], kEach);
  EXPECT_EQ(fates(cut_and_closed, {})[Verdict::refused], kEach);
  EXPECT_EQ(fates(cut_and_closed, {.one_scan_a_channel = true})[Verdict::refused], kEach);
  fates(cut_and_closed, {.progressive = true});
  EXPECT_EQ(fates(end_missing, {})[Verdict::refused], kEach);
}

TEST_F(DamagedJpeg, DamagedEntropyCodedDataIsNeverSilent) {
  for (const auto& form : {JpegForm{}, JpegForm{.optimised = true}, JpegForm{.restart = 2}}) {
    EXPECT_GT(fates(bits_flipped, form)[Verdict::refused], 0);
    // With tables of its own a file takes three such runs in a hundred for other data as long as the right ones.
    if (!form.optimised) {
      EXPECT_GT(fates(run_zeroed, form)[Verdict::refused], 0);
    }
  }
}

TEST_F(DamagedJpeg, AHeaderOfAnotherSizeIsNeverSilent) {
  const auto counts = fates(size_changed, {});
  EXPECT_GT(counts.at(Verdict::refused), 0);
  auto jpeg = jpeg_of(64, 64, test::textured(64, 64, 3, 1));
  set_size(jpeg, 8192, 8192);
  EXPECT_EQ(verdict(jpeg, {}), Verdict::refused);
}

TEST_F(DamagedJpeg, MissingTablesAreRefusedUnlessTheyAreTheStandardOnes) {
  auto counts = fates(tables_missing, {.optimised = true});
  EXPECT_GT(counts[Verdict::refused], kEach / 2);
  EXPECT_EQ(counts[Verdict::whole], 0);
  EXPECT_EQ(fates(tables_missing, {})[Verdict::refused] * 2, kEach);  // libjpeg knows the standard's Huffman tables
}

TEST_F(DamagedJpeg, MarkersOutOfPlaceAreNeverSilent) {
  EXPECT_EQ(fates(begun_twice, {})[Verdict::refused], kEach);
  const auto garbage = fates(garbage_between_markers, {});
  EXPECT_GT(garbage.at(Verdict::told), 0);
  EXPECT_GT(fates(restarts_wrong, {.restart = 2})[Verdict::refused], 0);
}

TEST_F(DamagedJpeg, OtherKindsOfJpegAreRefused) {
  EXPECT_EQ(fates(kind_changed, {})[Verdict::refused], kEach);
  const auto images = open(jpeg_of(16, 16, test::textured(16, 16, 3, 1), {.arithmetic = true}));
  const auto text = test::text_of<DataError>([&] { pixels_of(images); });
  EXPECT_TRUE(text.ends_with("' is a JPEG with arithmetic coding, wanted Huffman coding: save it anew")) << text;
}

}  // namespace
}  // namespace tandem::data
