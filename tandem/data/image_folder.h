#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/image/folder_layout.h"
#include "tandem/data/image/image_planes.h"

namespace tandem::data {

/// A folder of images, one sub-folder a class, as torchvision's ImageFolder reads it:
///
///   DIR/cat/1.jpg  DIR/cat/more/2.png  DIR/dog/1.jpg            or the same under DIR/train and DIR/test
///
/// find_layout() in folder_layout.h lists the other names of train and test, and says when they are classes. Classes
/// are the sub-folders sorted by name, samples of a class are sorted by path, byte by byte. Hidden files and folders
/// (their names begin with a dot) and files outside of the classes are ignored. So are files in a class that are
/// neither JPEG nor PNG; Split::summary counts them. A file named .jpg, .jpeg or .png must be an image.
struct ImageFolderOptions {
  std::filesystem::path folder = {};
  int64_t size = 64;  // images are scaled to size x size (form.fit), 8..1024
  /// Applies only without a test folder; must be at least 2. In each class, every hold_out-th image is in the test set:
  /// the images i with i % hold_out == hold_out - 1. Of a class with fewer images the last one is, unless it is the
  /// only one.
  int64_t hold_out = 5;
  LayoutKind layout = LayoutKind::automatic;
  ImageForm form = {};  // its height and width are replaced by `size`
};

/// Opens every file once to check its header; pixels are decoded when read. Memory: the paths.
/// Throws SettingsError (size, hold_out), DataError (no such folder, a layout in doubt, fewer than two classes, a class
/// without images, a class only in the test set, a test set without a training set, one image in each class, a file
/// that is not an image, too large, or cut short, a broken link), naming the folder or file; IoError (unreadable).
/// Split::summary names sub-folders with images that are in neither set.
Split image_folder(const ImageFolderOptions& options);

/// What a trained model knows of its classes.
struct KnownClasses {
  std::vector<std::string> names;              // of the labels, in order
  std::string training_images;                 // image_fingerprint() of what it was trained on; empty: not known
  std::filesystem::path training_folder = {};  // where that was; it may have gone
  bool takes_others = false;                   // a folder of other classes is no error
};

/// Images to test such a model on: those of the folder's test set if it has one; else, if the rest is what the model
/// was trained on, the images that `options.hold_out` holds out; else all. Split::summary says which, and
/// whether these are of the training folder, changed since, so that images trained on are among them. Sub-folders are
/// named as classes are; not every class must be there. If one is none of the classes, this is an error, or, with
/// `takes_others`, labels are the numbers of the sub-folders (Split::has_other_classes). The images have the sides of
/// `options.form`. Split::train is null. Throws as image_folder(), and DataError.
Split test_folder(const ImageFolderOptions& options, const KnownClasses& known);

/// Stands for a set of image files, wherever their folder has been moved: a checksum of the names of their folders and
/// files, in order.
std::string image_fingerprint(const Dataset& images);

}  // namespace tandem::data
