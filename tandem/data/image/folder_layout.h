#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::data {

/// Where a folder of images has its classes: a sub-folder each.
struct FolderLayout {
  std::filesystem::path train;
  std::optional<std::filesystem::path> test;  // none: a part of `train` is to be held out
};

/// Sub-folders named train or training, and test, testing, val, valid or validation (the first of these that is there),
/// in upper or lower case, are the training and the test set. Without a training set the folder's own sub-folders are
/// the classes. Throws DataError (two folders of one name, a test set alone), IoError (unreadable).
FolderLayout find_layout(const std::filesystem::path& folder);

/// Sorted by name, without those that begin with a dot. Links to folders count. Throws IoError (unreadable).
std::vector<std::filesystem::path> sub_folders(const std::filesystem::path& folder);

/// What may help who named a folder whose only class is `only`: the folder below that has several sub-folders.
std::string remedy_for_one_class(std::filesystem::path only);

[[noreturn]] void fail_unreadable(const std::filesystem::path& folder, const std::error_code& fault);

}  // namespace tandem::data
