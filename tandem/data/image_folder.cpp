#include "tandem/data/image_folder.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/data/image/folder_layout.h"
#include "tandem/data/image/hold_out.h"
#include "tandem/data/image/image_files.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

struct Class {
  std::string name;
  std::vector<fs::path> files;
  std::vector<uint16_t> sides;  // the shorter one of each image, as stored
};

/// Ignored entries: files of other formats, pipes and devices.
struct PassedOver {
  int64_t count = 0;
  fs::path example;

  void add(const fs::path& path) {
    if (count++ == 0) example = path;
  }
};

/// All regular files of a folder and its sub-folders, except hidden ones; links to folders are not followed.
std::vector<fs::path> list_files(const fs::path& folder, PassedOver& passed_over) {
  std::vector<fs::path> files;
  std::error_code fault;
  fs::recursive_directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    if (entry->path().filename().native().starts_with('.')) {
      entry.disable_recursion_pending();
    } else if (std::error_code ignored; entry->is_regular_file(ignored)) {
      files.push_back(entry->path());
    } else if (entry->is_symlink(ignored) && !entry->exists(ignored)) {
      throw DataError("image '" + entry->path().string() + "' is a symbolic link to nothing",
                      "remove it, or put back what it names");
    } else if (!entry->is_directory(ignored)) {
      passed_over.add(entry->path());
    }
  }
  if (fault) fail_unreadable(folder, fault);
  std::ranges::sort(files, {}, [](const fs::path& file) { return file.native(); });
  return files;
}

/// Lists and checks the images of a class. A file named as an image must be one; another file counts only if it is one.
Class open_class(const fs::path& folder, PassedOver& passed_over) {
  Class one{folder.filename().string(), list_files(folder, passed_over), {}};
  const auto is_other = [](const fs::path& file) { return !has_image_name(file) && !is_image_file(file); };
  const auto others = std::stable_partition(one.files.begin(), one.files.end(), std::not_fn(is_other));
  const auto count = one.files.end() - others;
  std::for_each(others, one.files.end(), [&](const fs::path& file) { passed_over.add(file); });
  one.files.erase(others, one.files.end());
  if (one.files.empty()) {
    throw DataError("class folder '" + folder.string() + (count == 0 ? "' is empty" : "' has no JPEG and no PNG") +
                        ", wanted at least one image",
                    "remove the folder, or put images into it");
  }
  for (const auto& file : one.files) {
    const auto header = check_image_file(file);
    one.sides.push_back(static_cast<uint16_t>(std::min(header.width, header.height)));
  }
  return one;
}

/// `is_named`: the folder is the one that the options name.
[[noreturn]] void fail_without_classes(const fs::path& folder, bool is_named) {
  std::error_code ignored;
  const bool has_images = std::ranges::any_of(fs::directory_iterator(folder, ignored),
                                              [](const auto& entry) { return has_image_name(entry.path()); });
  throw DataError("image folder '" + folder.string() + "' has no classes, wanted a sub-folder for each",
                  !has_images ? ""
                  : is_named  ? "the images in it are of one class: name the folder above it"
                              : "put the images in it into one for each class");
}

std::vector<Class> list_classes(const fs::path& folder, const ImageFolderOptions& options, PassedOver& passed_over) {
  std::vector<Class> classes;
  for (const auto& one : sub_folders(folder)) classes.push_back(open_class(one, passed_over));
  if (classes.empty()) fail_without_classes(folder, folder == options.folder);
  return classes;
}

/// Rejects a single class, for which every prediction would be right.
void check_several(const std::vector<Class>& classes, const fs::path& folder) {
  if (classes.size() > 1) return;
  throw DataError("image folder '" + folder.string() + "' has one class, '" + classes[0].name + "', wanted two or more",
                  remedy_for_one_class(folder / classes[0].name));
}

int64_t median_side(const std::vector<Class>& classes) {
  std::vector<uint16_t> sides;
  for (const auto& one : classes) sides.insert(sides.end(), one.sides.begin(), one.sides.end());
  const auto middle = sides.begin() + static_cast<int64_t>(sides.size() / 2);
  std::ranges::nth_element(sides, middle);
  return *middle;
}

using ImageSamples = std::vector<ImageFile>;

/// A class's label is the index of its name among the training classes.
ImageSamples label_all(const std::vector<Class>& classes, const std::vector<std::string>& names,
                       const fs::path& folder) {
  ImageSamples samples;
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
std::pair<ImageSamples, ImageSamples> hold_out(const std::vector<Class>& classes, int64_t every) {
  ImageSamples train, test;
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

using ClassNames = std::shared_ptr<const std::vector<std::string>>;

std::unique_ptr<ImageFiles> image_set(const fs::path& place, ImageSamples samples, const ClassNames& names,
                                      const ImageFolderOptions& options) {
  ImageFileList list{.num_classes = static_cast<int64_t>(names->size()), .names = names};
  list.form = with_sides(options.form, options.size, options.size);
  list.description = "images   " + format_count(list.num_classes) + " classes · " +
                     format_count(static_cast<int64_t>(samples.size())) + " images from " + place.string();
  list.files = std::move(samples);
  return std::make_unique<ImageFiles>(std::move(list));
}

/// "1 file, DIR/a" or "2 files, as DIR/a".
std::string count_text(int64_t count, const std::string& what, const fs::path& example) {
  return format_count(count) + " " + what + (count == 1 ? ", " : "s, as ") + example.string();
}

void check(const ImageFolderOptions& options) {
  check_image_side("size", options.size);
  check_hold_out(options.hold_out);
  if (std::error_code ignored; !fs::is_directory(options.folder, ignored)) {
    const bool is_there = fs::exists(options.folder, ignored);
    throw DataError("image folder '" + options.folder.string() + (is_there ? "' is a file" : "' does not exist") +
                    ", wanted a folder with a sub-folder for each class");
  }
}

}  // namespace

Split image_folder(const ImageFolderOptions& options) {
  check(options);
  const auto [train_place, test_place, unused] = find_layout(options.folder, options.layout);
  PassedOver passed_over;
  const auto classes = list_classes(train_place, options, passed_over);
  check_several(classes, train_place);
  auto names = std::make_shared<std::vector<std::string>>();
  for (const auto& one : classes) names->push_back(one.name);

  auto [train, test] = test_place
                           ? std::pair(label_all(classes, *names, train_place),
                                       label_all(list_classes(*test_place, options, passed_over), *names, *test_place))
                           : hold_out(classes, options.hold_out);
  if (test.empty()) {
    throw DataError("image folder '" + options.folder.string() + "' has one image a class, wanted two to hold one out",
                    "add images, or make train and test folders in it");
  }
  const std::string held =
      test_place ? test_place->string() : "1 of " + std::to_string(options.hold_out) + " of each class";
  Split split;
  split.train = image_set(train_place, std::move(train), names, options);
  split.test = image_set(test_place.value_or(train_place), std::move(test), names, options);
  split.stored_side = median_side(classes);
  split.summary = split.train->describe() + " · held out: " + held;
  if (!unused.empty()) {
    split.summary += " · in neither set: " + count_text(static_cast<int64_t>(unused.size()), "folder", unused.front());
  }
  if (passed_over.count > 0) {
    split.summary +=
        " · passed over, neither JPEG nor PNG: " + count_text(passed_over.count, "file", passed_over.example);
  }
  return split;
}

}  // namespace tandem::data
