#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::data {

/// How the folder of an image data set is divided. split: into a training set and, perhaps, a test set, whose
/// sub-folders are the classes. flat: its own sub-folders are the classes, whatever their names. automatic: as found.
enum class LayoutKind { automatic, split, flat };

/// The folders of an image data set; each sub-folder of them is a class.
struct FolderLayout {
  std::filesystem::path train;
  std::optional<std::filesystem::path> test = {};  // nullopt: hold out a part of `train`
  std::vector<std::filesystem::path> unused = {};  // of a split: the other sub-folders that have images
};

/// Finds the training set, a sub-folder named train or training, and the test set, a sub-folder named test, testing,
/// val, valid or validation (the first of these that has classes), in upper or lower case. A folder with such a name
/// that has only images of no class is not used.
///
/// A class may have such a name, so `automatic` looks into these folders: a class has images directly in it, a training
/// or test set has sub-folders with images. A training set beside a test set makes a split, and so does a training set
/// alone. Where other sub-folders with images or folders without the sub-folders of a set contradict that, both
/// readings are possible, which is an error. Throws DataError (both readings are possible, two folders of one name, a
/// test set alone), IoError (unreadable).
FolderLayout find_layout(const std::filesystem::path& folder, LayoutKind kind);

/// The sub-folders of `folder`, sorted by name, without those whose names begin with a dot. Links to folders are
/// included. Throws IoError (unreadable).
std::vector<std::filesystem::path> sub_folders(const std::filesystem::path& folder);

/// A remedy for an image folder whose only class is `only`: suggests the first folder below it that has several
/// sub-folders.
std::string remedy_for_one_class(std::filesystem::path only);

[[noreturn]] void fail_unreadable(const std::filesystem::path& folder, const std::error_code& fault);

}  // namespace tandem::data
