#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::data {

/// The folders of an image data set; each sub-folder of them is a class.
struct FolderLayout {
  std::filesystem::path train;
  std::optional<std::filesystem::path> test;  // nullopt: hold out a part of `train`
};

/// Finds the training set, a sub-folder named train or training, and the test set, a sub-folder named test, testing,
/// val, valid or validation (the first of these that exists), in upper or lower case. Without a training set the
/// classes are the sub-folders of `folder` itself. Throws DataError (two folders of one name, a test set alone),
/// IoError (unreadable).
FolderLayout find_layout(const std::filesystem::path& folder);

/// The sub-folders of `folder`, sorted by name, without those whose names begin with a dot. Links to folders are
/// included. Throws IoError (unreadable).
std::vector<std::filesystem::path> sub_folders(const std::filesystem::path& folder);

/// A remedy for an image folder whose only class is `only`: suggests the first folder below it that has several
/// sub-folders.
std::string remedy_for_one_class(std::filesystem::path only);

[[noreturn]] void fail_unreadable(const std::filesystem::path& folder, const std::error_code& fault);

}  // namespace tandem::data
