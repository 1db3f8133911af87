#include "tandem/data/image/folder_layout.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/data/image/image_files.h"

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

/// What a folder holds, hidden files and folders aside.
struct Contents {
  bool images = false;   // directly, as a class does
  bool classes = false;  // sub-folders with images, as a training or test set does

  bool any() const { return images || classes; }
  bool are_a_set() const { return classes && !images; }
};

/// Folders of one kind, and what any of them holds.
struct Group {
  std::vector<fs::path> folders;
  Contents contents;
};

/// The sub-folders of an image folder.
struct Found {
  Group train, test, others;  // others: only those that hold images
};

/// A file without an extension may be an image as well.
bool looks_like_image(const fs::directory_entry& entry) {
  std::error_code ignored;
  const auto& path = entry.path();
  if (path.filename().native().starts_with('.') || !entry.is_regular_file(ignored)) return false;
  return has_image_name(path) || (!path.has_extension() && is_image_file(path));
}

bool has_image_below(const fs::path& folder) {
  std::error_code fault;
  fs::recursive_directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    if (looks_like_image(*entry)) return true;
    if (entry->path().filename().native().starts_with('.')) entry.disable_recursion_pending();
  }
  return false;
}

/// Nothing if the folder cannot be read: it may be of no use, as lost+found.
Contents contents_of(const fs::path& folder) {
  Contents contents;
  std::error_code fault, ignored;
  fs::directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    const bool is_hidden = entry->path().filename().native().starts_with('.');
    contents.images = contents.images || looks_like_image(*entry);
    contents.classes =
        contents.classes || (!is_hidden && entry->is_directory(ignored) && has_image_below(entry->path()));
  }
  return contents;
}

Found look_into(const fs::path& folder) {
  const auto is_one_of = [](std::span<const std::string_view> names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  Found found;
  const auto folders = sub_folders(folder);
  const auto is_named = [&](const fs::path& one) {
    return is_one_of(kTraining, lower_name(one)) || is_one_of(kTest, lower_name(one));
  };
  if (std::ranges::none_of(folders, is_named)) return found;
  for (const auto& one : folders) {
    const auto contents = contents_of(one);
    if (!is_named(one) && !contents.any()) continue;
    auto& group = is_one_of(kTraining, lower_name(one)) ? found.train : is_named(one) ? found.test : found.others;
    group.folders.push_back(one);
    group.contents.images |= contents.images;
    group.contents.classes |= contents.classes;
  }
  return found;
}

enum class Reading { split, flat, either };

/// The rules that find_layout() states.
Reading reading_of(const Found& found) {
  const auto& train = found.train.contents;
  const auto& test = found.test.contents;
  const auto& others = found.others.contents;
  if (found.train.folders.empty() && found.test.folders.empty()) return Reading::flat;
  if (train.classes && test.classes) {
    const bool is_like_others = others.classes || (others.any() && train.images && test.images);
    return is_like_others ? Reading::either : Reading::split;
  }
  if (others.any()) return train.are_a_set() || test.are_a_set() ? Reading::either : Reading::flat;
  if (found.train.folders.empty()) return Reading::split;
  const bool is_class = train.images && !train.classes;
  if (test.images || (is_class && test.classes)) return Reading::either;
  return is_class ? Reading::flat : Reading::split;
}

std::string quoted_name(const fs::path& folder) { return "'" + folder.filename().string() + "'"; }

[[noreturn]] void fail_in_doubt(const fs::path& folder, const Found& found) {
  std::string list;
  for (const auto* group : {&found.train, &found.test, &found.others}) {
    if (group->folders.empty()) continue;
    const auto [images, classes] = contents_of(group->folders.front());
    list += (list.empty() ? "" : ", ") + quoted_name(group->folders.front()) + " has " +
            (!images && !classes ? "no images"
             : !classes          ? "images"
             : images            ? "images, and sub-folders with images"
                                 : "sub-folders with images");
  }
  const auto remedy = found.train.folders.empty()
                          ? "if " + quoted_name(found.test.folders.front()) +
                                " is a class, set layout=flat; if it is a test set, put the training set's classes "
                                "into a folder train beside it"
                          : "set layout=split to train on the sub-folders of " +
                                quoted_name(found.train.folders.front()) +
                                ", or layout=flat if it is a class as the others are";
  throw DataError("image folder '" + folder.string() + "' may be split into training and test set or not: " + list,
                  remedy);
}

/// The first folder whose name is the first of `names` that there is. Throws DataError if two folders have that name.
fs::path find_named(const std::vector<fs::path>& folders, std::span<const std::string_view> names) {
  const auto place = [&](const fs::path& one) { return std::ranges::find(names, lower_name(one)) - names.begin(); };
  const auto first = std::ranges::min_element(folders, {}, place);
  const auto twin =
      std::find_if(first + 1, folders.end(), [&](const auto& one) { return place(one) == place(*first); });
  if (twin == folders.end()) return *first;
  throw DataError("image folder '" + first->parent_path().string() + "' has " + quoted_name(*first) + " and " +
                      quoted_name(*twin) + ", wanted one of them",
                  "rename or remove the other");
}

FolderLayout split_layout(const fs::path& folder, const Found& found) {
  if (found.train.folders.empty()) {
    const auto has = found.test.folders.empty() ? "no training set, wanted a sub-folder train"
                                                : quoted_name(found.test.folders.front()) +
                                                      " but no training set, wanted a sub-folder train beside it";
    throw DataError(
        "image folder '" + folder.string() + "' has " + has,
        "rename the training set's folder to train, name a folder whose sub-folders are the classes, or set "
        "layout=flat");
  }
  FolderLayout layout{find_named(found.train.folders, kTraining)};
  auto sets = found.test.folders;
  std::erase_if(sets, [&](const auto& one) {
    const auto contents = contents_of(one);
    return !contents.classes && (contents.images || found.test.contents.classes);
  });
  if (!sets.empty()) layout.test = find_named(sets, kTest);
  for (const auto* group : {&found.train, &found.test, &found.others}) {
    for (const auto& one : group->folders) {
      if (one != layout.train && one != layout.test && contents_of(one).any()) layout.unused.push_back(one);
    }
  }
  return layout;
}

}  // namespace

FolderLayout find_layout(const fs::path& folder, LayoutKind kind) {
  if (kind == LayoutKind::flat) return {folder};
  const auto found = look_into(folder);
  if (kind == LayoutKind::automatic && reading_of(found) == Reading::either) fail_in_doubt(folder, found);
  const bool is_flat = kind == LayoutKind::automatic && reading_of(found) == Reading::flat;
  return is_flat ? FolderLayout{folder} : split_layout(folder, found);
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
