#include "tandem/data/image/folder_layout.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> kTraining = {"train", "training"};
constexpr std::array<std::string_view, 5> kTest = {"test", "testing", "val", "valid", "validation"};

std::string lower_name(const fs::path& folder) {
  auto name = folder.filename().string();
  for (auto& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c);
  return name;
}

/// The first of `names` that one of `folders` has. Throws DataError if two folders have it.
std::optional<fs::path> find_named(const std::vector<fs::path>& folders, std::span<const std::string_view> names) {
  for (const auto name : names) {
    const auto found = std::ranges::find(folders, name, lower_name);
    if (found == folders.end()) continue;
    const auto twin =
        std::find_if(found + 1, folders.end(), [&](const auto& folder) { return lower_name(folder) == name; });
    if (twin == folders.end()) return *found;
    throw DataError("image folder '" + found->parent_path().string() + "' has '" + found->filename().string() +
                        "' and '" + twin->filename().string() + "', wanted one of them",
                    "rename or remove the other");
  }
  return std::nullopt;
}

}  // namespace

FolderLayout find_layout(const fs::path& folder) {
  const auto folders = sub_folders(folder);
  if (const auto train = find_named(folders, kTraining)) return {*train, find_named(folders, kTest)};
  const auto is_test = [](const fs::path& one) { return std::ranges::find(kTest, lower_name(one)) != kTest.end(); };
  if (!folders.empty() && std::ranges::all_of(folders, is_test)) {
    throw DataError("image folder '" + folder.string() + "' has '" + folders.front().filename().string() +
                        "' but no training set, wanted a sub-folder train beside it",
                    "rename the training set's folder to train, or name a folder whose sub-folders are the classes");
  }
  return {folder, std::nullopt};
}

std::vector<fs::path> sub_folders(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code fault, ignored;
  fs::directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    const bool is_hidden = entry->path().filename().native().starts_with('.');
    if (!is_hidden && fs::is_directory(entry->path(), ignored)) folders.push_back(entry->path());
  }
  if (fault) fail_unreadable(folder, fault);
  std::ranges::sort(folders, {}, [](const fs::path& one) { return one.native(); });
  return folders;
}

std::string remedy_for_one_class(fs::path only) {
  auto below = sub_folders(only);
  for (; below.size() == 1; below = sub_folders(only)) only = below.front();
  if (below.size() > 1) return "did you mean '" + only.string() + "'?";
  return "name the folder whose sub-folders are the classes";
}

void fail_unreadable(const fs::path& folder, const std::error_code& fault) {
  throw IoError("folder '" + folder.string() + "' cannot be read (" + fault.message() + ")");
}

}  // namespace tandem::data
