#pragma once
#include <array>
#include <filesystem>
#include <optional>

#include "tandem/data/glyphs.h"
#include "tandem/data/image_folder.h"
#include "tandem/data/loader.h"
#include "tandem/data/preprocessing.h"

namespace tandem::job {

struct Job;
struct DataSource;

/// The training data.
struct Data {
  const DataSource* source = nullptr;
  std::filesystem::path folder;  // empty: the source has none
  int64_t size = 0;              // pixels a side
  int64_t hold_out = 0;
  data::LayoutKind layout = data::LayoutKind::automatic;
  /// What makes of an image's file what the model is trained and tested on. Of glyphs, which are drawn: of a picture of
  /// dark ink on light paper, whose normalization is theirs.
  data::Preprocessing preprocessing;
  data::GlyphOptions glyphs;  // if the images are drawn from fonts
  int64_t unseen = 0;         // number of characters kept for retrieval
  data::AugmentOptions augment;
  int prefetch = 0, workers = 0;

  bool has_folder() const { return !folder.empty(); }
};

/// A source of images: a row of the table in data.cpp. To add a source, add a row.
struct DataSource {
  std::string_view name;      // `data=name`, or `data=name:DIR`
  bool has_folder = false;    // the path follows the name
  bool is_drawn = false;      // the settings of fonts and characters have an effect
  bool has_hold_out = false;  // data.hold_out has an effect
  bool has_layout = false;    // so has data.layout
  bool has_pictures = false;  // files to decode: data.orientation and data.resize have an effect
  bool has_test = true;       // there may be a test set
  std::string_view sign;      // what only its folders hold; empty: nothing
  int64_t least_size = 1;
  std::string_view why_least = "";  // end of the error text for a smaller size
  bool is_ink = false;              // one grey channel, light on dark, of dark ink on light paper
  bool is_grey = false;             // one grey channel, as stored

  std::array<int64_t, 3> (*image_shape)(const Job& job);  // channels, height, width
  data::Split (*open)(const Job& job);

  /// Opens the folder to test a trained model of known classes on; the preprocessing is the job's. Null: as open().
  data::Split (*open_test)(const Job& job, const data::KnownClasses& known) = nullptr;

  /// The size of the stored images, which is kept unless data.size is given. Null, or nullopt: there is none.
  std::optional<int64_t> (*own_size)(const std::filesystem::path& folder) = nullptr;
};

}  // namespace tandem::job
