#pragma once
#include <cstddef>
#include <span>

namespace tandem::data {

/// How the stored rows and columns of a picture become the upright picture: its pixel (y, x) is the stored pixel (y, x)
/// or, if transposed, (x, y), counted from the last stored row or column where that is mirrored.
struct Turn {
  bool transposed = false, rows_mirrored = false, columns_mirrored = false;

  bool operator==(const Turn&) const = default;
};

/// The turn that the tag Orientation of EXIF data asks for. `exif` is a TIFF structure, of either byte order; damaged
/// data, and data without a valid tag, ask for none.
/// Source: CIPA DC-008, Exif 2.3, section 4.6.4 A; TIFF 6.0, section 2.
Turn exif_turn(std::span<const std::byte> exif);

}  // namespace tandem::data
