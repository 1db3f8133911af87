#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/data/dataset.h"
#include "tandem/data/image/image_planes.h"

namespace tandem::data {

/// What an image's name says in Market-1501's layout: 0001_c1s1_000151_01.jpg is person 1, camera 1. The rest of the
/// name (sequence, frame, box) is not read, so names like DukeMTMC's 0005_c2_f0046985.jpg are accepted too.
struct PersonImageName {
  int64_t pid;     // -1 junk, 0 distractor, else a person; at most 999999
  int64_t camera;  // 1..99

  bool operator==(const PersonImageName&) const = default;
};

/// Returns nullopt if the name does not have that form. `name` must not include the folder.
std::optional<PersonImageName> parse_person_image_name(std::string_view name);

/// Market-1501's folders: DIR/bounding_box_train, DIR/query, DIR/bounding_box_test (the gallery).
struct Market1501Options {
  std::filesystem::path folder = {};
  int64_t height = 256, width = 128;  // images are scaled to this (form.fit), 8..1024
  /// 0: nothing is held out, because the benchmark trains on all of bounding_box_train. Else 2 or more, as in
  /// ImageFolderOptions.
  int64_t hold_out = 0;
  ImageForm form = {};  // its height and width are replaced by these
};

/// A person re-identification task. Training classes are the pids, sorted, as labels 0..n-1; class_name() is the pid.
/// Retrieval: the labels are the pids; pid 0 is a distractor, which matches no query; the cameras come from the names.
/// Images (.jpg, .jpeg, .png) are sorted by name. Junk (pid -1) is dropped; hidden files and other files are ignored.
/// Opens every other image once to check its header. Memory: the paths.
/// Throws SettingsError (sides, hold_out), DataError (a folder is missing or has no image, an image's name cannot be
/// read, a query has pid 0, a file is not an image, nothing can be held out), IoError.
/// Source: Zheng et al. 2015, Scalable Person Re-identification: A Benchmark.
Split market1501(const Market1501Options& options);

}  // namespace tandem::data
