#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// What an image's name tells in Market-1501's layout: 0001_c1s1_000151_01.jpg is person 1, camera 1. The rest of the
/// name (sequence, frame, box) is not read, so DukeMTMC's 0005_c2_f0046985.jpg will do too.
struct PersonImageName {
  int64_t pid;     // -1 junk, 0 distractor, else a person; at most 999999
  int64_t camera;  // 1..99

  bool operator==(const PersonImageName&) const = default;
};

/// Nothing when the name is not of that form. `name` is without folder.
std::optional<PersonImageName> parse_person_image_name(std::string_view name);

/// Market-1501's folders: DIR/bounding_box_train, DIR/query, DIR/bounding_box_test (the gallery).
struct Market1501Options {
  std::filesystem::path folder = {};
  int64_t height = 256, width = 128;  // images are scaled to this, each side by itself; 8..1024
  /// Nothing by default: the benchmark trains on all of bounding_box_train. Else as in ImageFolderOptions, 2 or more.
  int64_t hold_out = 0;
};

/// A person re-identification task. Training classes are the pids, sorted, as labels 0..n-1; class_name() is the pid.
/// Retrieval: the labels are the pids; pid 0 is a distractor, right for no query; cameras as the names tell them.
/// Images (.jpg, .jpeg, .png) are sorted by name. Junk (pid -1) is dropped; hidden and other files are passed over.
/// Opens every image once to check its header. Memory: the paths.
/// Throws SettingsError (sides, hold_out), DataError (a folder is missing or has no image, an image's name cannot be
/// read, a query of pid 0, a file that is no image), IoError.
/// Source: Zheng et al. 2015, Scalable Person Re-identification: A Benchmark.
Split market1501(const Market1501Options& options);

}  // namespace tandem::data
