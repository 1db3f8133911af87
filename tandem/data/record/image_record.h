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

/// What a record of labelled images holds, little endian:
///
///   u32 number of labels | f32 label | u64 id | u64 id2 | the labels, f32 each | the encoded image
///
/// `label` counts when there are no `labels`. Source: MXNet, image_recordio.
struct ImageRecord {
  float label = 0;
  uint64_t id = 0, id2 = 0;
  std::vector<float> labels = {};
  std::span<const std::byte> image = {};  // in the payload; empty in a record that only tells about others
};

/// Throws DataError whose text goes behind a record's place: "is 7 bytes, wanted ..."
ImageRecord parse_image_record(std::span<const std::byte> payload);

/// The inverse. Throws DataError (more labels than 2^32 - 1).
std::vector<std::byte> pack_image_record(const ImageRecord& record);

/// use(ImageRecord) of the record at `offset` of a RecordIO file. A DataError of `use`, whose text goes behind a
/// record's place too, gets file and offset before it. Throws what read_record and parse_image_record throw.
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
