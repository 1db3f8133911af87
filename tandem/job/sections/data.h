#pragma once
#include <array>
#include <filesystem>
#include <optional>

#include "tandem/data/glyphs.h"
#include "tandem/data/loader.h"

namespace tandem::job {

struct Job;
struct DataSource;

/// What to learn.
struct Data {
  const DataSource* source = nullptr;
  std::filesystem::path folder;  // empty: the source has none
  int64_t size = 0;              // pixels a side
  int64_t hold_out = 0;
  data::GlyphOptions glyphs;  // where the images are drawn
  int64_t unseen = 0;         // characters kept for retrieval
  data::AugmentOptions augment;
  int prefetch = 0;

  bool has_folder() const { return !folder.empty(); }
};

/// Where images come from: a row of the table in data.cpp, with which a new source becomes known.
struct DataSource {
  std::string_view name;      // `data=name`, or `data=name:DIR`
  bool has_folder = false;    // whose path follows the name
  bool is_drawn = false;      // the settings of fonts and characters mean something
  bool has_hold_out = false;  // data.hold_out means something
  int64_t least_size = 1;
  std::string_view why_least = "";  // ends the error on a smaller one

  std::array<int64_t, 3> (*image_shape)(const Job& job);  // channels, height, width
  data::Split (*open)(const Job& job);

  /// The images' own size, which they keep unless data.size is given; null, or nothing: there is none.
  std::optional<int64_t> (*own_size)(const std::filesystem::path& folder) = nullptr;
};

}  // namespace tandem::job
