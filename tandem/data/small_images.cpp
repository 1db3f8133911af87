#include "tandem/data/small_images.h"

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/data/image/image_files.h"
#include "tandem/data/image/resize.h"
#include "tandem/data/record/gzip.h"
#include "tandem/data/record/idx_array.h"
#include "tandem/storage/mapped_file.h"
#include "tandem/storage/named_file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

constexpr int64_t kCifarSide = 32;
constexpr uint64_t kMostUnpacked = uint64_t{1} << 30, kMostNames = 1 << 16;

const Names kCifarNames = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
const Names kFashionNames = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                             "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// A file's bytes, unpacked if its name ends in .gz.
class FileBytes {
 public:
  explicit FileBytes(const fs::path& path) : name_(path.string()), file_(path) {
    if (path.extension() == ".gz") unpacked_ = gunzip(file_.bytes(), kMostUnpacked, name_);
  }

  const std::string& name() const { return name_; }
  std::span<const std::byte> bytes() const { return unpacked_.empty() ? file_.bytes() : std::span(unpacked_); }
  const uint8_t* at(const std::byte* place) const { return reinterpret_cast<const uint8_t*>(place); }

 private:
  std::string name_;
  storage::MappedFile file_;
  std::vector<std::byte> unpacked_;
};

/// Images one behind the other, in memory that `files` keep.
struct Block {
  const uint8_t *pixels = nullptr, *labels = nullptr;
  int64_t count = 0, pixel_step = 0, label_step = 0;  // from one image to the next
};

struct SmallImageList {
  std::vector<std::shared_ptr<FileBytes>> files = {};
  std::vector<Block> blocks = {};
  std::array<int64_t, 3> stored = {};  // channels, height, width
  int64_t size = 0;                    // of the images that are given; 0: as stored
  int64_t classes = 0;
  Names names = {};  // empty: the numbers
  std::string title = {};

  int64_t count() const {
    int64_t all = 0;
    for (const auto& block : blocks) all += block.count;
    return all;
  }
};

/// Of planes, red, green and blue interleaved; one plane three times.
Image interleaved(const uint8_t* planes, const std::array<int64_t, 3>& stored) {
  const auto [channels, height, width] = stored;
  const int64_t pixels = height * width;
  Image image{.width = width, .height = height};
  image.pixels.resize(static_cast<size_t>(3 * pixels));
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = planes[(channels == 1 ? 0 : c) * pixels + i];
  }
  return image;
}

class SmallImages final : public Dataset {
 public:
  explicit SmallImages(SmallImageList list) : list_(std::move(list)), size_(list_.count()) {}

  int64_t size() const override { return size_; }
  int64_t num_classes() const override { return list_.classes; }
  std::array<int64_t, 3> image_shape() const override {
    if (list_.size == 0) return list_.stored;
    return {list_.stored[0], list_.size, list_.size};
  }

  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    auto block = list_.blocks.begin();
    for (; index >= block->count; ++block) index -= block->count;
    const auto* planes = block->pixels + index * block->pixel_step;
    if (image_shape() == list_.stored) {
      std::copy_n(planes, pixels.size(), pixels.begin());
    } else {
      const ImageForm form = {
          .height = list_.size, .width = list_.size, .colours = list_.stored[0] == 1 ? Colours::grey : Colours::rgb};
      resize_to_planes(interleaved(planes, list_.stored), form, pixels);
    }
    return block->labels[index * block->label_step];
  }

  std::string class_name(int64_t label) const override {
    check_class(label, list_.classes);
    return list_.names.empty() ? std::to_string(label) : list_.names[static_cast<size_t>(label)];
  }

  std::string describe() const override {
    return list_.title + "  " + format_count(list_.classes) + " classes · " + format_count(size_) + " images";
  }

 private:
  SmallImageList list_;
  int64_t size_;
};

void check_labels(const Block& block, int64_t classes, const std::string& file) {
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t label = block.labels[i * block.label_step];
    if (label < classes) continue;
    throw DataError("'" + file + "' has label " + std::to_string(label) + " at image " + std::to_string(i) +
                        ", wanted 0.." + std::to_string(classes - 1),
                    "use another copy");
  }
}

void check_size(int64_t size) {
  if (size != 0) check_image_side("size", size);
}

/// The first of these folders that has one of the files.
std::optional<fs::path> find_folder(const fs::path& folder, const Names& below, const Names& files) {
  for (const auto& one : below) {
    const auto place = one.empty() ? folder : folder / one;
    if (std::ranges::any_of(files, [&](const auto& file) { return is_there(place / file); })) return place;
  }
  return std::nullopt;
}

/// What a folder may hold in place of the files, and what helps then.
struct Instead {
  Names files;
  std::string remedy;
};

fs::path folder_with(const fs::path& folder, const Names& below, const Names& files, const std::string& what,
                     const std::vector<Instead>& instead = {}) {
  if (const auto found = find_folder(folder, below, files)) return *found;
  const auto other =
      std::ranges::find_if(instead, [&](const auto& one) { return find_folder(folder, {""}, one.files).has_value(); });
  throw DataError("folder '" + folder.string() + "' has no file " + files.front() + ", wanted " + what,
                  other == instead.end() ? "" : other->remedy);
}

// CIFAR

constexpr const char* kOfPython = "what is there is the Python version: take the binary one";

struct CifarKind {
  std::string title, folder, names_file;
  Instead packed, of_python;
  Names training, test;
  int64_t classes, labels;  // labels of a record: the last one counts
  Names names;
};

const CifarKind& cifar_10() {
  static const CifarKind kind = {
      .title = "cifar10",
      .folder = "cifar-10-batches-bin",
      .names_file = "batches.meta.txt",
      .packed = {{"cifar-10-binary.tar.gz"}, "unpack cifar-10-binary.tar.gz there"},
      .of_python = {{"data_batch_1", "cifar-10-batches-py/data_batch_1", "cifar-10-python.tar.gz"}, kOfPython},
      .training = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      .test = {"test_batch.bin"},
      .classes = 10,
      .labels = 1,
      .names = kCifarNames};
  return kind;
}

const CifarKind& cifar_100() {
  static const CifarKind kind = {
      .title = "cifar100",
      .folder = "cifar-100-binary",
      .names_file = "fine_label_names.txt",
      .packed = {{"cifar-100-binary.tar.gz"}, "unpack cifar-100-binary.tar.gz there"},
      .of_python = {{"train", "cifar-100-python/train", "cifar-100-python.tar.gz"}, kOfPython},
      .training = {"train.bin"},
      .test = {"test.bin"},
      .classes = 100,
      .labels = 2,
      .names = {}};
  return kind;
}

/// The lines of the file that are not empty.
Names names_in(const fs::path& file, const CifarKind& kind) {
  if (!is_there(file)) return kind.names;
  std::istringstream text(storage::read_named_file("class names", file, kMostNames));
  Names names;
  for (std::string line; std::getline(text, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (std::ssize(names) != kind.classes) {
    throw DataError("'" + file.string() + "' names " + std::to_string(names.size()) + " classes, wanted " +
                        std::to_string(kind.classes),
                    "remove it, or use another copy");
  }
  return names;
}

Block cifar_block(const FileBytes& file, const CifarKind& kind) {
  const int64_t record = kind.labels + 3 * kCifarSide * kCifarSide, bytes = std::ssize(file.bytes());
  if (bytes == 0 || bytes % record != 0) {
    throw DataError("'" + file.name() + "' has " + format_count(bytes) + " bytes, wanted a multiple of " +
                        format_count(record) + ", one record an image",
                    "it may be cut short: use another copy, of the binary version");
  }
  const auto* first = file.at(file.bytes().data());
  const Block block = {.pixels = first + kind.labels,
                       .labels = first + kind.labels - 1,
                       .count = bytes / record,
                       .pixel_step = record,
                       .label_step = record};
  check_labels(block, kind.classes, file.name());
  return block;
}

std::unique_ptr<Dataset> cifar_set(const fs::path& folder, const Names& files, const CifarKind& kind, int64_t size,
                                   const Names& names) {
  SmallImageList list{.stored = {3, kCifarSide, kCifarSide},
                      .size = size,
                      .classes = kind.classes,
                      .names = names,
                      .title = kind.title};
  for (const auto& name : files) {
    if (!is_there(folder / name)) {
      throw DataError("folder '" + folder.string() + "' has no file " + name + ", wanted all of " + kind.title);
    }
    list.files.push_back(std::make_shared<FileBytes>(folder / name));
    list.blocks.push_back(cifar_block(*list.files.back(), kind));
  }
  return std::make_unique<SmallImages>(std::move(list));
}

Split split_of(std::unique_ptr<Dataset> train, std::unique_ptr<Dataset> test, int64_t stored_side) {
  auto summary = train->describe() + ", " + format_count(test->size()) + " to test";
  return {
      .train = std::move(train), .test = std::move(test), .summary = std::move(summary), .stored_side = stored_side};
}

Split cifar(const SmallImageOptions& options, const CifarKind& kind) {
  check_size(options.size);
  const auto folder =
      folder_with(options.folder, {"", kind.folder}, kind.training,
                  "the binary files of " + kind.title + ", there or in " + kind.folder, {kind.packed, kind.of_python});
  const auto names = names_in(folder / kind.names_file, kind);
  return split_of(cifar_set(folder, kind.training, kind, options.size, names),
                  cifar_set(folder, kind.test, kind, options.size, names), kCifarSide);
}

// IDX

constexpr const char *kTrainingSet = "train", *kTestSet = "t10k";

/// "train-images-idx3-ubyte" and its like.
Names idx_names(const std::string& set, const std::string& what, int dims) {
  Names names;
  for (const std::string separator : {"-", "."}) {
    for (const std::string ending : {"", ".gz"}) {
      names.push_back(set + "-" + what + separator + "idx" + std::to_string(dims) + "-ubyte" + ending);
    }
  }
  return names;
}

/// Where the files may be, of either set.
const Names kIdxFolders = {"", "MNIST/raw", "FashionMNIST/raw"};

bool has_idx_files(const fs::path& folder) {
  return find_folder(folder, kIdxFolders, idx_names(kTrainingSet, "images", 3)).has_value();
}

/// `own`: where torchvision puts the set.
fs::path idx_folder(const fs::path& folder, const std::string& own = "") {
  Names below = kIdxFolders;
  if (!own.empty()) below = {"", own};
  return folder_with(folder, below, idx_names(kTrainingSet, "images", 3),
                     "IDX files of images and labels, plain or .gz");
}

fs::path idx_file(const fs::path& folder, const std::string& set, const std::string& what, int dims) {
  const auto names = idx_names(set, what, dims);
  const auto found = std::ranges::find_if(names, [&](const auto& name) { return is_there(folder / name); });
  if (found != names.end()) return folder / *found;
  throw DataError("folder '" + folder.string() + "' has no file " + names.front() + ", plain or .gz");
}

std::unique_ptr<Dataset> idx_set(const fs::path& folder, const std::string& set, const std::string& title, int64_t size,
                                 const Names& names) {
  constexpr int64_t kClasses = 10;
  const auto images = std::make_shared<FileBytes>(idx_file(folder, set, "images", 3));
  const auto labels = std::make_shared<FileBytes>(idx_file(folder, set, "labels", 1));
  const auto of_images = parse_idx(images->bytes(), 3, images->name());
  const auto of_labels = parse_idx(labels->bytes(), 1, labels->name());
  if (of_images.sizes[0] != of_labels.sizes[0]) {
    throw DataError("'" + labels->name() + "' has " + format_count(of_labels.sizes[0]) +
                        " labels, wanted one for each of " + format_count(of_images.sizes[0]) + " images",
                    "use files of one set");
  }
  const int64_t height = of_images.sizes[1], width = of_images.sizes[2];
  const Block block = {.pixels = images->at(of_images.values.data()),
                       .labels = labels->at(of_labels.values.data()),
                       .count = of_images.sizes[0],
                       .pixel_step = height * width,
                       .label_step = 1};
  check_labels(block, kClasses, labels->name());
  return std::make_unique<SmallImages>(SmallImageList{.files = {images, labels},
                                                      .blocks = {block},
                                                      .stored = {1, height, width},
                                                      .size = size,
                                                      .classes = kClasses,
                                                      .names = names,
                                                      .title = title});
}

Split idx_split(const SmallImageOptions& options, const std::string& title, const std::string& own,
                const Names& names) {
  check_size(options.size);
  const auto folder = idx_folder(options.folder, own);
  auto train = idx_set(folder, kTrainingSet, title, options.size, names);
  auto test = idx_set(folder, kTestSet, title, options.size, names);
  const auto shape = train->image_shape();
  if (test->image_shape() != shape) {
    throw DataError("folder '" + folder.string() + "' has training images of " + std::to_string(shape[1]) + " x " +
                        std::to_string(shape[2]) + " and test images of another size",
                    "use files of one set, or set size");
  }
  return split_of(std::move(train), std::move(test), std::min(shape[1], shape[2]));
}

}  // namespace

Split cifar10(const SmallImageOptions& options) { return cifar(options, cifar_10()); }
Split cifar100(const SmallImageOptions& options) { return cifar(options, cifar_100()); }
Split mnist(const SmallImageOptions& options) { return idx_split(options, "mnist", "MNIST/raw", {}); }
Split fashion_mnist(const SmallImageOptions& options) {
  return idx_split(options, "fashion", "FashionMNIST/raw", kFashionNames);
}

std::optional<int64_t> idx_side(const fs::path& folder) {
  if (!has_idx_files(folder)) return std::nullopt;
  const FileBytes images(idx_file(idx_folder(folder), kTrainingSet, "images", 3));
  const auto sizes = parse_idx(images.bytes(), 3, images.name()).sizes;
  if (sizes[1] != sizes[2] || !is_image_side(sizes[1])) return std::nullopt;
  return sizes[1];
}

}  // namespace tandem::data
