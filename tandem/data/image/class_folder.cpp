#include "tandem/data/image/class_folder.h"

#include <algorithm>
#include <functional>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/data/image/folder_layout.h"
#include "tandem/data/image/hold_out.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

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

ClassFolder open_class(const fs::path& folder, PassedOver& passed_over) {
  const auto before = passed_over.count;
  ClassFolder one{folder.filename().string(), list_images(folder, passed_over), {}};
  if (one.files.empty()) {
    throw DataError("class folder '" + folder.string() +
                        (passed_over.count == before ? "' is empty" : "' has no JPEG and no PNG") +
                        ", wanted at least one image",
                    "remove the folder, or put images into it");
  }
  for (const auto& file : one.files) {
    const auto header = check_image_file(file);
    one.sides.push_back(static_cast<uint16_t>(std::min(header.width, header.height)));
  }
  return one;
}

[[noreturn]] void fail_without_classes(const fs::path& folder, bool is_named) {
  std::error_code ignored;
  const bool has_images = std::ranges::any_of(fs::directory_iterator(folder, ignored),
                                              [](const auto& entry) { return has_image_name(entry.path()); });
  throw DataError("image folder '" + folder.string() + "' has no classes, wanted a sub-folder for each",
                  !has_images ? ""
                  : is_named  ? "the images in it are of one class: name the folder above it"
                              : "put the images in it into one for each class");
}

}  // namespace

std::vector<fs::path> list_images(const fs::path& folder, PassedOver& passed_over) {
  auto files = list_files(folder, passed_over);
  const auto is_other = [](const fs::path& file) { return !has_image_name(file) && !is_image_file(file); };
  const auto others = std::stable_partition(files.begin(), files.end(), std::not_fn(is_other));
  std::for_each(others, files.end(), [&](const fs::path& file) { passed_over.add(file); });
  files.erase(others, files.end());
  return files;
}

std::vector<ClassFolder> list_classes(const fs::path& folder, bool is_named, PassedOver& passed_over) {
  std::vector<ClassFolder> classes;
  for (const auto& one : sub_folders(folder)) classes.push_back(open_class(one, passed_over));
  if (classes.empty()) fail_without_classes(folder, is_named);
  return classes;
}

std::pair<ImageSamples, ImageSamples> hold_out(const std::vector<ClassFolder>& classes, int64_t every) {
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

std::string text_of(const PassedOver& passed_over) {
  if (passed_over.count == 0) return "";
  return " · passed over, neither JPEG nor PNG: " + count_text(passed_over.count, "file", passed_over.example);
}

std::string count_text(int64_t count, const std::string& what, const fs::path& example) {
  return format_count(count) + " " + what + (count == 1 ? ", " : "s, as ") + example.string();
}

}  // namespace tandem::data
