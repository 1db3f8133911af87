#include "tandem/data/image_folder.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/bytes.h"
#include "tandem/base/error.h"
#include "tandem/data/image_decoder.h"
#include "tandem/data/mapped_file.h"
#include "tandem/data/resize.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSmallest = 8, kLargest = 1024, kColours = 3;

struct Class {
  std::string name;
  std::vector<fs::path> files;
};

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

[[noreturn]] void fail_unreadable(const fs::path& folder, const std::error_code& fault) {
  throw IoError("folder '" + folder.string() + "' cannot be read (" + fault.message() + ")");
}

/// Runs an image reader and puts the file's name before what it complains about.
template <class Read>
auto with_name(const fs::path& file, Read read) {
  try {
    return read();
  } catch (const DataError& error) {
    throw DataError("image '" + file.string() + "' " + error.what());
  }
}

void check_header(const fs::path& file) {
  const MappedFile mapped(file);
  with_name(file, [&] { return read_image_header(mapped.bytes()); });
}

std::vector<fs::path> list_images(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code fault;
  fs::recursive_directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    if (is_hidden(entry->path())) {
      entry.disable_recursion_pending();
    } else if (std::error_code ignored; entry->is_regular_file(ignored)) {
      files.push_back(entry->path());
    } else if (entry->is_symlink(ignored) && !entry->exists(ignored)) {
      throw DataError("image '" + entry->path().string() + "' is a symbolic link to nothing",
                      "remove it, or put back what it names");
    }
  }
  if (fault) fail_unreadable(folder, fault);
  std::ranges::sort(files, {}, [](const fs::path& file) { return file.native(); });
  return files;
}

std::vector<Class> list_classes(const fs::path& folder) {
  std::vector<Class> classes;
  std::error_code fault;
  fs::directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    if (is_hidden(entry->path()) || !is_folder(entry->path())) continue;
    classes.push_back({entry->path().filename().string(), list_images(entry->path())});
    if (classes.back().files.empty()) {
      throw DataError("class folder '" + entry->path().string() + "' is empty, wanted at least one image",
                      "remove the folder, or put images into it");
    }
  }
  if (fault) fail_unreadable(folder, fault);
  if (classes.empty()) {
    throw DataError("image folder '" + folder.string() + "' has no classes, wanted a sub-folder for each");
  }
  std::ranges::sort(classes, {}, &Class::name);
  for (const auto& one : classes) std::ranges::for_each(one.files, check_header);
  return classes;
}

struct Sample {
  fs::path file;
  int64_t label;
};
using Samples = std::vector<Sample>;

class ImageFolder final : public Dataset {
 public:
  ImageFolder(std::string what, std::shared_ptr<const std::vector<std::string>> names, Samples samples, int64_t size)
      : what_(std::move(what)), names_(std::move(names)), samples_(std::move(samples)), size_(size) {}

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  int64_t num_classes() const override { return static_cast<int64_t>(names_->size()); }
  std::array<int64_t, 3> image_shape() const override { return {kColours, size_, size_}; }

  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    const auto& [file, label] = samples_[static_cast<size_t>(index)];
    const MappedFile mapped(file);
    const auto image = with_name(file, [&] { return decode_image(mapped.bytes(), size_); });
    resize_to_planes(image, size_, size_, pixels);
    return label;
  }

  std::string class_name(int64_t label) const override {
    TORCH_CHECK_INDEX(label >= 0 && label < num_classes(), "class is ", label, ", wanted 0..", num_classes() - 1);
    return (*names_)[static_cast<size_t>(label)];
  }

  std::string describe() const override {
    return "images   " + format_count(num_classes()) + " classes · " + format_count(size()) + " images from " + what_;
  }

 private:
  std::string what_;
  std::shared_ptr<const std::vector<std::string>> names_;
  Samples samples_;
  int64_t size_;
};

std::optional<fs::path> test_folder(const fs::path& folder) {
  for (const char* name : {"test", "val"}) {
    if (is_folder(folder / name)) return folder / name;
  }
  return std::nullopt;
}

/// Labels are the places of the classes' names among those of the training classes.
Samples label_all(const std::vector<Class>& classes, const std::vector<std::string>& names, const fs::path& folder) {
  Samples samples;
  for (const auto& one : classes) {
    const auto at = std::ranges::lower_bound(names, one.name);
    if (at == names.end() || *at != one.name) {
      throw DataError("class folder '" + (folder / one.name).string() + "' has no twin among the training classes",
                      "add training images of it, or remove it");
    }
    for (const auto& file : one.files) samples.push_back({file, at - names.begin()});
  }
  return samples;
}

/// Splits each class by the rule that ImageFolderOptions::hold_out states.
std::pair<Samples, Samples> hold_out(const std::vector<Class>& classes, int64_t every) {
  Samples train, test;
  for (size_t label = 0; label < classes.size(); ++label) {
    const auto& files = classes[label].files;
    const auto count = static_cast<int64_t>(files.size());
    for (int64_t i = 0; i < count; ++i) {
      const bool only_last = count < every && count > 1;
      const bool held_out = only_last ? i == count - 1 : i % every == every - 1;
      (held_out ? test : train).push_back({files[static_cast<size_t>(i)], static_cast<int64_t>(label)});
    }
  }
  return {std::move(train), std::move(test)};
}

void check(const ImageFolderOptions& options) {
  if (options.size < kSmallest || options.size > kLargest) {
    throw SettingsError("data.size is " + std::to_string(options.size) + ", wanted 8..1024");
  }
  if (options.hold_out < 2) {
    throw SettingsError("data.hold_out is " + std::to_string(options.hold_out) + ", wanted 2 or more");
  }
  if (!is_folder(options.folder)) {
    std::error_code ignored;
    const bool is_there = fs::exists(options.folder, ignored);
    throw DataError("image folder '" + options.folder.string() + (is_there ? "' is a file" : "' does not exist") +
                    ", wanted a folder with a sub-folder for each class");
  }
}

}  // namespace

Split image_folder(const ImageFolderOptions& options) {
  check(options);
  const bool has_train = is_folder(options.folder / "train");
  const auto test_place = has_train ? test_folder(options.folder) : std::nullopt;
  const fs::path train_place = has_train ? options.folder / "train" : options.folder;
  const auto classes = list_classes(train_place);
  auto names = std::make_shared<std::vector<std::string>>();
  for (const auto& one : classes) names->push_back(one.name);

  auto [train, test] = test_place ? std::pair(label_all(classes, *names, train_place),
                                              label_all(list_classes(*test_place), *names, *test_place))
                                  : hold_out(classes, options.hold_out);
  if (test.empty()) {
    throw DataError("image folder '" + options.folder.string() + "' has one image a class, wanted two to hold one out",
                    "add images, or make train and test folders in it");
  }
  const std::string held =
      test_place ? test_place->string() : "1 of " + std::to_string(options.hold_out) + " of each class";
  Split split;
  split.train = std::make_unique<ImageFolder>(train_place.string(), names, std::move(train), options.size);
  split.test =
      std::make_unique<ImageFolder>(test_place.value_or(train_place).string(), names, std::move(test), options.size);
  split.summary = split.train->describe() + " · held out: " + held;
  return split;
}

}  // namespace tandem::data
