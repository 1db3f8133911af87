#include "tandem/data/small_images.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tandem/base/error.h"
#include "tandem/data/record/gzip.h"
#include "tandem/data/record/idx_array.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::spill;
using test::TemporaryFolder;
using test::text_of;

/// A byte that tells image, channel and place.
uint8_t pixel_of(int64_t image, int64_t channel, int64_t place) {
  return static_cast<uint8_t>(image * 37 + channel * 101 + place);
}

std::string planes_of(int64_t image, int64_t channels, int64_t pixels) {
  std::string bytes;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < pixels; ++i) bytes += static_cast<char>(pixel_of(image, c, i));
  }
  return bytes;
}

std::string cifar_file(std::initializer_list<std::string> labels, int64_t first) {
  std::string bytes;
  for (const auto& label : labels) bytes += label + planes_of(first++, 3, 1024);
  return bytes;
}

std::string label(int one) { return {static_cast<char>(one)}; }
std::string labels(int coarse, int fine) { return {static_cast<char>(coarse), static_cast<char>(fine)}; }

void write_cifar10(const fs::path& folder) {
  for (int i = 1; i <= 5; ++i) {
    spill(folder / ("data_batch_" + std::to_string(i) + ".bin"), cifar_file({label(i), label(9 - i)}, 2 * i));
  }
  spill(folder / "test_batch.bin", cifar_file({label(3)}, 50));
}

std::string number(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string idx(const std::vector<uint32_t>& sizes, const std::string& values, char type = 8) {
  std::string bytes = {0, 0, type, static_cast<char>(sizes.size())};
  for (const auto size : sizes) bytes += number(size);
  return bytes + values;
}

std::string packed(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(bytes.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string idx_images(int64_t first, uint32_t count, uint32_t side) {
  std::string values;
  for (uint32_t i = 0; i < count; ++i) values += planes_of(first + i, 1, int64_t{side} * side);
  return idx({count, side, side}, values);
}

void write_idx(const fs::path& folder, const std::string& separator = "-", bool packs = false, uint32_t side = 28) {
  const auto write = [&](const std::string& name, const std::string& kind, const std::string& bytes) {
    const auto path = name + separator + kind + "-ubyte";
    spill(folder / (packs ? path + ".gz" : path), packs ? packed(bytes) : bytes);
  };
  write("train-images", "idx3", idx_images(0, 3, side));
  write("train-labels", "idx1", idx({3}, {7, 0, 9}));
  write("t10k-images", "idx3", idx_images(10, 2, side));
  write("t10k-labels", "idx1", idx({2}, {1, 2}));
}

std::vector<uint8_t> pixels_of(const Dataset& set, int64_t index, int64_t* label = nullptr) {
  const auto [channels, height, width] = set.image_shape();
  std::vector<uint8_t> pixels(static_cast<size_t>(channels * height * width));
  const auto own = set.read(index, pixels);
  if (label != nullptr) *label = own;
  return pixels;
}

void expect_image(const Dataset& set, int64_t index, int64_t image, int64_t label) {
  int64_t read = -1;
  const auto pixels = pixels_of(set, index, &read);
  EXPECT_EQ(read, label);
  const auto plane = std::ssize(pixels) / set.image_shape()[0];
  for (int64_t i = 0; i < std::ssize(pixels); ++i) {
    ASSERT_EQ(pixels[static_cast<size_t>(i)], pixel_of(image, i / plane, i % plane)) << i;
  }
}

TEST(SmallImages, Cifar10IsReadAsPublished) {
  for (const std::string below : {"", "cifar-10-batches-bin"}) {
    const TemporaryFolder folder;
    write_cifar10(folder / below);
    const auto split = cifar10({.folder = folder.path()});
    EXPECT_EQ(split.train->size(), 10);
    EXPECT_EQ(split.test->size(), 1);
    EXPECT_EQ(split.train->image_shape(), (std::array<int64_t, 3>{3, 32, 32}));
    EXPECT_EQ(split.train->num_classes(), 10);
    EXPECT_EQ(split.train->class_name(3), "cat");
    expect_image(*split.train, 0, 2, 1);
    expect_image(*split.train, 9, 11, 4);
    expect_image(*split.test, 0, 50, 3);
    EXPECT_EQ(split.summary, "cifar10  10 classes · 10 images, 1 to test");
  }
}

TEST(SmallImages, NamesOfClassesComeFromTheirFile) {
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  spill(folder / "batches.meta.txt", "a\nb\r\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  EXPECT_EQ(cifar10({.folder = folder.path()}).test->class_name(1), "b");
  spill(folder / "batches.meta.txt", "a\nb\n");
  EXPECT_EQ(
      text_of<DataError>([&] { cifar10({.folder = folder.path()}); }),
      "'" + (folder / "batches.meta.txt").string() + "' names 2 classes, wanted 10: remove it, or use another copy");
}

TEST(SmallImages, TheFineLabelOfCifar100Counts) {
  const TemporaryFolder folder;
  spill(folder / "cifar-100-binary/train.bin", cifar_file({labels(3, 99), labels(19, 0)}, 0));
  spill(folder / "cifar-100-binary/test.bin", cifar_file({labels(1, 50)}, 7));
  const auto split = cifar100({.folder = folder.path()});
  EXPECT_EQ(split.train->num_classes(), 100);
  EXPECT_EQ(split.train->class_name(99), "99");
  expect_image(*split.train, 0, 0, 99);
  expect_image(*split.test, 0, 7, 50);
}

TEST(SmallImages, IdxFilesArePlainOrPackedUnderEachOfTheirNames) {
  for (const std::string separator : {"-", "."}) {
    for (const bool packs : {false, true}) {
      for (const std::string below : {"", "MNIST/raw"}) {
        const TemporaryFolder folder;
        write_idx(folder / below, separator, packs);
        const auto split = mnist({.folder = folder.path()});
        EXPECT_EQ(split.train->size(), 3);
        EXPECT_EQ(split.train->image_shape(), (std::array<int64_t, 3>{1, 28, 28}));
        expect_image(*split.train, 2, 2, 9);
        expect_image(*split.test, 1, 11, 2);
        EXPECT_EQ(split.train->class_name(7), "7");
        if (below.empty()) {
          EXPECT_EQ(fashion_mnist({.folder = folder.path()}).train->class_name(0), "T-shirt/top");
        }
        EXPECT_EQ(idx_side(folder.path()), 28);
      }
    }
  }
}

TEST(SmallImages, OneFolderOfTorchvisionHoldsBothSets) {
  const TemporaryFolder folder;
  write_idx(folder / "MNIST/raw");
  write_idx(folder / "FashionMNIST/raw", "-", false, 20);
  EXPECT_EQ(mnist({.folder = folder.path()}).train->image_shape()[1], 28);
  EXPECT_EQ(fashion_mnist({.folder = folder.path()}).train->image_shape()[1], 20);
  EXPECT_EQ(idx_side(folder / "none"), std::nullopt);
}

TEST(SmallImages, AreScaledToAnotherSize) {
  const TemporaryFolder folder;
  write_idx(folder.path());
  const auto split = mnist({.folder = folder.path(), .size = 14});
  EXPECT_EQ(split.train->image_shape(), (std::array<int64_t, 3>{1, 14, 14}));
  EXPECT_EQ(pixels_of(*split.train, 1).size(), 196U);
  EXPECT_EQ(pixels_of(*mnist({.folder = folder.path(), .size = 28}).train, 1),
            pixels_of(*mnist({folder.path()}).train, 1));
  EXPECT_EQ(text_of<SettingsError>([&] { mnist({.folder = folder.path(), .size = 4}); }), "size is 4, wanted 8..1024");
}

TEST(SmallImages, MissingFilesAreNamed) {
  const TemporaryFolder folder;
  const auto name = folder.path().string();
  EXPECT_EQ(text_of<DataError>([&] { cifar10({.folder = folder.path()}); }),
            "folder '" + name +
                "' has no file data_batch_1.bin, wanted the binary files of cifar10, there or in cifar-10-batches-bin");
  const auto remedy_with = [&](const std::string& file) {
    test::spill(folder / file, "");
    try {
      cifar10({.folder = folder.path()});
    } catch (const DataError& error) {
      return error.remedy();
    }
    return std::string();
  };
  EXPECT_EQ(remedy_with("other"), "");
  EXPECT_EQ(remedy_with("data_batch_1"), "what is there is the Python version: take the binary one");
  EXPECT_EQ(remedy_with("cifar-10-binary.tar.gz"), "unpack cifar-10-binary.tar.gz there");
  EXPECT_EQ(
      text_of<DataError>([&] { mnist({.folder = folder.path()}); }),
      "folder '" + name + "' has no file train-images-idx3-ubyte, wanted IDX files of images and labels, plain or .gz");
  write_cifar10(folder.path());
  fs::remove(folder / "data_batch_4.bin");
  EXPECT_EQ(text_of<DataError>([&] { cifar10({.folder = folder.path()}); }),
            "folder '" + name + "' has no file data_batch_4.bin, wanted all of cifar10");
  write_idx(folder.path());
  fs::remove(folder / "t10k-labels-idx1-ubyte");
  EXPECT_EQ(text_of<DataError>([&] { mnist({.folder = folder.path()}); }),
            "folder '" + name + "' has no file t10k-labels-idx1-ubyte, plain or .gz");
}

TEST(SmallImages, DamagedCifarFilesAreRefused) {
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  const auto file = folder / "data_batch_2.bin";
  const auto told = [&](const std::string& bytes) {
    spill(file, bytes);
    return text_of<DataError>([&] { cifar10({.folder = folder.path()}); });
  };
  const auto whole = cifar_file({label(1), label(2)}, 0);
  const std::string wanted =
      " bytes, wanted a multiple of 3,073, one record an image: it may be cut short: use another "
      "copy, of the binary version";
  EXPECT_EQ(told(whole.substr(0, 6145)), "'" + file.string() + "' has 6,145" + wanted);
  EXPECT_EQ(told(""), "'" + file.string() + "' has 0" + wanted);
  EXPECT_EQ(told(cifar_file({label(1), label(10)}, 0)),
            "'" + file.string() + "' has label 10 at image 1, wanted 0..9: use another copy");
}

TEST(SmallImages, DamagedIdxFilesAreRefused) {
  const TemporaryFolder folder;
  const auto told = [&](const std::string& name, const std::string& bytes) {
    write_idx(folder.path());
    spill(folder / name, bytes);
    auto text = text_of<DataError>([&] { mnist({.folder = folder.path()}); });
    const auto path = "'" + (folder / name).string() + "' ";
    return text.starts_with(path) ? text.substr(path.size()) : text;
  };
  const std::string again = ": use another copy", images = "train-images-idx3-ubyte", own = "train-labels-idx1-ubyte";
  EXPECT_EQ(told(images, "abc"), "has 3 bytes, wanted an IDX array" + again);
  EXPECT_EQ(told(images, "abcdefgh"), "is no IDX array: it does not begin with two zeros" + again);
  EXPECT_EQ(told(images, idx({1, 28, 28}, "x", 0x0D)), "holds values of type 13, wanted 8, unsigned bytes" + again);
  EXPECT_EQ(told(images, idx({3}, "abc")), "has 1 dims, wanted 3" + again);
  EXPECT_EQ(told(images, idx({3, 28, 28}, "").substr(0, 14)), "is cut short in its header" + again);
  EXPECT_EQ(told(images, idx({0, 28, 28}, "")), "has no values: dim 0 is 0" + again);
  EXPECT_EQ(told(images, idx({3, 28, 28}, "abc")),
            "is cut short: it holds 3 values, fewer than its header says" + again);
  EXPECT_EQ(told(images, idx({~0U, ~0U, ~0U}, "abc")),
            "is cut short: it holds 3 values, fewer than its header says" + again);
  EXPECT_EQ(told(own, idx({3}, "\1\2\3 more")), "is 5 bytes longer than its header says" + again);
  EXPECT_EQ(told(own, idx({2}, "\1\2")), "has 2 labels, wanted one for each of 3 images: use files of one set");
  EXPECT_EQ(told(own, idx({3}, {1, 2, 77})), "has label 77 at image 2, wanted 0..9" + again);
  EXPECT_EQ(told("t10k-images-idx3-ubyte", idx_images(0, 2, 20)),
            "folder '" + folder.path().string() +
                "' has training images of 28 x 28 and test images of another size: use files of one set, or set size");
}

std::string told_of_gzip(const std::string& bytes, uint64_t most = 1 << 20) {
  return text_of<DataError>([&] { gunzip(bytes_of(bytes), most, "x.gz"); });
}

TEST(Gzip, ComesBackWhole) {
  std::string text;
  for (int64_t i = 0; i < 300'000; ++i) text += static_cast<char>(i * i >> 7);
  const auto file = packed(text);
  const auto unpacked = gunzip(bytes_of(file), text.size(), "x.gz");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(unpacked.data()), unpacked.size()), text);
  const auto twice = file + packed("more");
  EXPECT_EQ(gunzip(bytes_of(twice), 1 << 20, "x.gz").size(), text.size() + 4);
  EXPECT_TRUE(gunzip(bytes_of(packed("")), 10, "x.gz").empty());
}

TEST(Gzip, WhatIsDamagedIsRefused) {
  const auto file = packed(std::string(5000, 'a') + "b");
  EXPECT_EQ(told_of_gzip("plain text"), "'x.gz' is no gzip file, or a damaged one: use another copy");
  EXPECT_EQ(told_of_gzip(""), "'x.gz' is cut short: its gzip stream has no end: use another copy");
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_EQ(told_of_gzip(file.substr(0, length)), "'x.gz' is cut short: its gzip stream has no end: use another copy")
        << length;
  }
  auto spoilt = file;
  spoilt[file.size() - 6] ^= 1;  // the checksum
  EXPECT_EQ(told_of_gzip(spoilt), "'x.gz' is no gzip file, or a damaged one: use another copy");
  EXPECT_EQ(told_of_gzip(file + "junk"), "'x.gz' has bytes behind the end of its gzip stream: use another copy");
  EXPECT_EQ(told_of_gzip(file, 5000),
            "'x.gz' holds more than 5000 bytes: a file that is not packed may be of any size");
  EXPECT_EQ(told_of_gzip(file, 5001), "nothing thrown");
}

}  // namespace
}  // namespace tandem::data
