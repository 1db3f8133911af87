#include "tandem/data/record/image_record.h"

#include <bit>
#include <cstring>
#include <limits>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

static_assert(std::endian::native == std::endian::little, "records are read as they lie in memory");

struct RecordHeader {
  uint32_t num_labels;
  float label;
  uint64_t id, id2;
};
static_assert(sizeof(RecordHeader) == 24);

}  // namespace

ImageRecord parse_image_record(std::span<const std::byte> payload) {
  RecordHeader header;
  if (payload.size() < sizeof header) {
    throw DataError("is " + std::to_string(payload.size()) + " bytes, wanted at least a header of 24");
  }
  std::memcpy(&header, payload.data(), sizeof header);
  const auto rest = payload.subspan(sizeof header);
  const uint64_t label_bytes = uint64_t{header.num_labels} * sizeof(float);
  if (label_bytes > rest.size()) {
    throw DataError("has " + std::to_string(header.num_labels) + " labels, wanted at most the " +
                    std::to_string(rest.size() / sizeof(float)) + " that fit behind its header");
  }
  ImageRecord record{header.label, header.id, header.id2, std::vector<float>(header.num_labels),
                     rest.subspan(label_bytes)};
  if (label_bytes > 0) std::memcpy(record.labels.data(), rest.data(), label_bytes);
  return record;
}

std::vector<std::byte> pack_image_record(const ImageRecord& record) {
  if (record.labels.size() > std::numeric_limits<uint32_t>::max()) {
    throw DataError("image record has " + std::to_string(record.labels.size()) + " labels, wanted fewer than 2^32");
  }
  const RecordHeader header{static_cast<uint32_t>(record.labels.size()), record.label, record.id, record.id2};
  std::vector<std::byte> out;
  for (const auto part :
       {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(record.labels)), record.image}) {
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

}  // namespace tandem::data
