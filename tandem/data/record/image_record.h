#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/storage/record_io.h"

namespace tandem::data {

/// The payload of a record of labelled images, little endian:
///
///   u32 number of labels | f32 label | u64 id | u64 id2 | the labels, f32 each | the encoded image
///
/// `label` is used only if there are no `labels`. Source: MXNet, image_recordio.
struct ImageRecord {
  float label = 0;
  uint64_t id = 0, id2 = 0;
  std::vector<float> labels = {};
  std::span<const std::byte> image = {};  // a view of the payload; empty in a header record
};

/// Throws DataError, whose text is meant to follow a record's place: "is 7 bytes, wanted ..."
ImageRecord parse_image_record(std::span<const std::byte> payload);

/// The inverse of parse_image_record(). Throws DataError (more labels than 2^32 - 1).
std::vector<std::byte> pack_image_record(const ImageRecord& record);

/// Returns use(ImageRecord) for the record at `offset` of a RecordIO file. Puts file and offset before the text of a
/// DataError that parsing or `use` throws. Throws what read_record() and parse_image_record() throw.
template <class Use>
auto with_image_record(std::span<const std::byte> file, uint64_t offset, std::string_view name, Use use) {
  std::vector<std::byte> joined;
  const auto record = storage::read_record(file, offset, joined, name);
  try {
    return use(parse_image_record(record.payload));
  } catch (const DataError& error) {
    throw DataError(storage::record_place_text(name, offset) + " " + error.what());
  }
}

}  // namespace tandem::data
