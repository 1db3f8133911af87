#include "tandem/data/image_folder.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/bytes.h"
#include "tandem/base/error.h"
#include "tandem/data/hold_out.h"
#include "tandem/data/image_files.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

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
  for (const auto& one : classes) std::ranges::for_each(one.files, check_image_file);
  return classes;
}

using Samples = std::vector<ImageFile>;

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
      (is_held_out(i, count, every) ? test : train)
          .push_back({files[static_cast<size_t>(i)], static_cast<int64_t>(label)});
    }
  }
  return {std::move(train), std::move(test)};
}

using Names = std::shared_ptr<const std::vector<std::string>>;

std::unique_ptr<ImageFiles> image_set(const fs::path& place, Samples samples, const Names& names, int64_t size) {
  ImageFileList list{.num_classes = static_cast<int64_t>(names->size()), .names = names, .height = size, .width = size};
  list.description = "images   " + format_count(list.num_classes) + " classes · " +
                     format_count(static_cast<int64_t>(samples.size())) + " images from " + place.string();
  list.files = std::move(samples);
  return std::make_unique<ImageFiles>(std::move(list));
}

void check(const ImageFolderOptions& options) {
  check_image_side("data.size", options.size);
  check_hold_out(options.hold_out);
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
  split.train = image_set(train_place, std::move(train), names, options.size);
  split.test = image_set(test_place.value_or(train_place), std::move(test), names, options.size);
  split.summary = split.train->describe() + " · held out: " + held;
  return split;
}

}  // namespace tandem::data
