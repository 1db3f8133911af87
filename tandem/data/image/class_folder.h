#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tandem/data/image/image_files.h"

namespace tandem::data {

/// The images of a class, in the order of their paths.
struct ClassFolder {
  std::string name;
  std::vector<std::filesystem::path> files;
  std::vector<uint16_t> sides;  // the shorter one of each image, as stored
};

/// Ignored entries: files of other formats, pipes and devices.
struct PassedOver {
  int64_t count = 0;
  std::filesystem::path example;

  void add(const std::filesystem::path& path) {
    if (count++ == 0) example = path;
  }
};

/// The images in a folder and its sub-folders, sorted by path, without hidden ones; links to folders are not followed.
/// A file named as an image must be one; another file counts only if it is one. Throws DataError (a link to nothing, a
/// damaged header), IoError.
std::vector<std::filesystem::path> list_images(const std::filesystem::path& folder, PassedOver& passed_over);

/// The sub-folders of `folder`, each with its images, sorted by name. Reads the header of each image. `is_named`: the
/// user has named the folder itself. Throws as list_images(), and DataError if there is no sub-folder, or one without
/// images.
std::vector<ClassFolder> list_classes(const std::filesystem::path& folder, bool is_named, PassedOver& passed_over);

using ImageSamples = std::vector<ImageFile>;

/// Splits each class by the rule of hold_out.h into training and test images. Labels are numbers in `classes`.
std::pair<ImageSamples, ImageSamples> hold_out(const std::vector<ClassFolder>& classes, int64_t every);

/// " · passed over, neither JPEG nor PNG: 1 file, DIR/a"; "" if nothing was.
std::string text_of(const PassedOver& passed_over);

/// "1 file, DIR/a" or "2 files, as DIR/a".
std::string count_text(int64_t count, const std::string& what, const std::filesystem::path& example);

}  // namespace tandem::data
