#pragma once
#include <cstdint>
#include <filesystem>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// A folder of images, one sub-folder a class, as torchvision's ImageFolder reads it:
///
///   DIR/cat/1.jpg  DIR/cat/more/2.png  DIR/dog/1.jpg            or the same under DIR/train and DIR/test
///
/// Other names of the two: find_layout() in folder_layout.h. Classes are the sub-folders sorted by name, samples of a
/// class sorted by path, byte by byte. Files and folders whose names begin with a dot, and files that lie in no class,
/// are passed over. So are files in a class that are neither JPEG nor PNG; Split::summary counts them. A file named
/// .jpg, .jpeg or .png must be an image.
struct ImageFolderOptions {
  std::filesystem::path folder = {};
  int64_t size = 64;  // images are scaled to size x size (each side by itself), three channels; 8..1024
  /// Without a test folder: images i of a class with i % hold_out == hold_out - 1 are the test set, and of a
  /// class with fewer than hold_out the last, unless it is the only one. At least 2.
  int64_t hold_out = 5;
};

/// Opens every file once to check its header; pixels are decoded when read. Memory: the paths.
/// Throws SettingsError (size, hold_out), DataError (no such folder, fewer than two classes, a class without images, a
/// class only in the test set, a test set without a training set, a file that is no image, too large, or cut short),
/// each naming the folder or file; IoError (unreadable).
Split image_folder(const ImageFolderOptions& options);

}  // namespace tandem::data
