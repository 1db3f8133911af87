#include "tandem/data/market1501.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/data/image/hold_out.h"
#include "tandem/data/image/image_files.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kJunk = -1, kDistractor = 0, kLargestPid = 999'999, kLargestCamera = 99;

struct PersonImage {
  fs::path path;
  PersonImageName name;
};
using PersonImages = std::vector<PersonImage>;

bool is_image_name(const fs::path& file) { return !file.filename().string().starts_with('.') && has_image_name(file); }

PersonImageName read_name(const fs::path& file) {
  const auto name = parse_person_image_name(file.filename().string());
  if (!name) {
    throw DataError("image '" + file.string() +
                        "' has a name that cannot be read, wanted PID_cCAMERA..., PID -1..999999 "
                        "and CAMERA 1..99, as in 0001_c1s1_000151_01.jpg",
                    "rename it, or remove it");
  }
  return *name;
}

/// The images of a folder without junk, sorted by name.
PersonImages list_images(const fs::path& folder) {
  PersonImages images;
  std::error_code fault;
  fs::directory_iterator entry(folder, fault), end;
  for (; !fault && entry != end; entry.increment(fault)) {
    if (std::error_code ignored; !is_image_name(entry->path()) || entry->is_directory(ignored)) continue;
    const auto name = read_name(entry->path());
    if (name.pid == kJunk) continue;
    check_image_file(entry->path());
    images.push_back({entry->path(), name});
  }
  if (fault == std::errc::no_such_file_or_directory || fault == std::errc::not_a_directory) {
    throw DataError("folder '" + folder.string() + "' does not exist",
                    "wanted bounding_box_train, query and bounding_box_test in one folder, as Market-1501 has them");
  }
  if (fault) throw IoError("folder '" + folder.string() + "' cannot be read (" + fault.message() + ")");
  if (images.empty()) throw DataError("folder '" + folder.string() + "' has no images, wanted at least one");
  std::ranges::sort(images, {}, [](const PersonImage& image) { return image.path.native(); });
  return images;
}

std::unique_ptr<ImageFiles> image_set(ImageFileList list, const Market1501Options& options, const std::string& what) {
  list.form = with_sides(options.form, options.height, options.width);
  list.description = "people   " + what + " · " + format_count(static_cast<int64_t>(list.files.size())) +
                     " images from " + options.folder.string();
  return std::make_unique<ImageFiles>(std::move(list));
}

void add_training_sets(Split& task, const PersonImages& images, const Market1501Options& options) {
  std::map<int64_t, PersonImages> people;
  for (const auto& image : images) people[image.name.pid].push_back(image);
  auto names = std::make_shared<std::vector<std::string>>();
  ImageFileList train{.num_classes = static_cast<int64_t>(people.size()), .names = names}, test = train;
  for (const auto& [pid, own] : people) {
    const auto label = static_cast<int64_t>(names->size()), count = static_cast<int64_t>(own.size());
    names->push_back(std::to_string(pid));
    for (int64_t i = 0; i < count; ++i) {
      const bool held_out = options.hold_out > 0 && is_held_out(i, count, options.hold_out);
      (held_out ? test : train).files.push_back({own[static_cast<size_t>(i)].path, label});
    }
  }
  if (options.hold_out > 0 && test.files.empty()) {
    throw DataError("folder '" + (options.folder / "bounding_box_train").string() +
                        "' has one image a person, wanted two to hold one out",
                    "add images, or set hold_out=0");
  }
  const std::string what = format_count(train.num_classes) + " classes";
  if (options.hold_out > 0) task.test = image_set(std::move(test), options, what);
  task.train = image_set(std::move(train), options, what);
}

RetrievalSet retrieval_set(const PersonImages& images, int64_t num_classes, const Market1501Options& options,
                           const std::string& what) {
  RetrievalSet set;
  ImageFileList list{.num_classes = num_classes};
  for (const auto& [path, name] : images) {
    list.files.push_back({path, name.pid});
    set.identity.push_back(name.pid);
    set.camera.push_back(name.camera);
  }
  set.images = image_set(std::move(list), options, what);
  return set;
}

}  // namespace

std::optional<PersonImageName> parse_person_image_name(std::string_view name) {
  PersonImageName found{};
  const char* end = name.data() + name.size();
  const auto pid = std::from_chars(name.data(), end, found.pid);
  const std::string_view rest(pid.ptr, end);
  if (pid.ec != std::errc() || !rest.starts_with("_c")) return std::nullopt;
  const auto camera = std::from_chars(rest.data() + 2, end, found.camera);
  if (camera.ec != std::errc() || camera.ptr == end) return std::nullopt;
  const bool is_good = found.pid >= kJunk && found.pid <= kLargestPid && found.camera >= 1 &&
                       found.camera <= kLargestCamera && (*camera.ptr == 's' || *camera.ptr == '_');
  return is_good ? std::optional(found) : std::nullopt;
}

Split market1501(const Market1501Options& options) {
  check_image_side("height", options.height);
  check_image_side("width", options.width);
  check_optional_hold_out(options.hold_out);
  const auto train = list_images(options.folder / "bounding_box_train");
  const auto query = list_images(options.folder / "query");
  const auto gallery = list_images(options.folder / "bounding_box_test");
  int64_t largest = 0;
  for (const auto* images : {&query, &gallery}) {
    for (const auto& image : *images) largest = std::max(largest, image.name.pid);
  }
  const auto distractor =
      std::ranges::find(query, kDistractor, [](const PersonImage& image) { return image.name.pid; });
  if (distractor != query.end()) {
    throw DataError("image '" + distractor->path.string() + "' is a query of pid 0, wanted 1 or more",
                    "0 is what the gallery's distractors have, give this person another pid");
  }

  Split task;
  add_training_sets(task, train, options);
  task.retrieval = Retrieval{retrieval_set(query, largest + 1, options, "query"),
                             retrieval_set(gallery, largest + 1, options, "gallery"), ""};
  task.retrieval->what = "people, query: " + format_count(task.retrieval->query.images->size()) +
                         " · gallery: " + format_count(task.retrieval->gallery.images->size());
  task.summary = task.train->describe();
  return task;
}

}  // namespace tandem::data
