#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/storage/record_io.h"

namespace tandem::data {

/// Most classes that a record's label can tell apart: float32 lacks whole numbers above 2^24.
inline constexpr int64_t kMaxFaceClasses = int64_t{1} << 24;

/// The file `property` beside face records: `classes,height,width`.
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

/// The images of a record file, in the order of `places` (sorted by key), with their classes: the first label.
///
/// Record 0 may be a header: two labels, no image. Its first label is the first key that is no image, and the images
/// are keys 1 to that; from 2^24 on, where float32 is no longer exact, they are the records that hold an image.
/// Without such a record every record is an image. `num_classes` 0: not known, any label below 2^24 will do.
/// Throws DataError (a damaged record, a label that is no whole number in 0..num_classes-1, an image whose header is
/// none, fewer or more images than the header tells, none at all).
std::vector<FaceSample> list_faces(std::span<const std::byte> records, std::span<const storage::RecordPlace> places,
                                   int64_t num_classes, std::string_view name);

}  // namespace tandem::data
