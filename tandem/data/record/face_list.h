#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/storage/record_io.h"

namespace tandem::data {

/// The most classes that a record's label can tell apart: float32 lacks whole numbers above 2^24.
inline constexpr int64_t kMaxFaceClasses = int64_t{1} << 24;

/// The contents of the file `property` beside face records: `classes,height,width`.
struct FaceProperty {
  int64_t classes, height, width;  // classes: 1..kMaxFaceClasses

  bool operator==(const FaceProperty&) const = default;
};

/// Throws DataError.
FaceProperty parse_face_property(std::span<const std::byte> file, std::string_view name);

/// An image among face records.
struct FaceSample {
  uint64_t offset;
  int32_t label;

  bool operator==(const FaceSample&) const = default;
};

/// Lists the images of a record file, in the order of `places`, which must be sorted by key. An image's class is the
/// first label.
///
/// The record with key 0 may be a header: two labels and no image. Its first label is then the first key that is not an
/// image, so the images are keys 1 to that key - 1. From 2^24 on, where float32 is no longer exact, all records that
/// hold an image count instead. Without a header every record is an image.
/// `num_classes` 0: unknown, any label below 2^24 is accepted.
/// Throws DataError (a damaged record, a label that is not a whole number in 0..num_classes-1, an invalid image header,
/// fewer or more images than the header says, no images).
std::vector<FaceSample> list_faces(std::span<const std::byte> records, std::span<const storage::RecordPlace> places,
                                   int64_t num_classes, std::string_view name);

}  // namespace tandem::data
