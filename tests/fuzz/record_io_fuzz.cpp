// libFuzzer: records, indices and faces are rejected with DataError, or records come back equal when written again.
#include <algorithm>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/data/record/face_list.h"
#include "tandem/data/record/image_record.h"
#include "tandem/storage/record_io.h"

using namespace tandem::data;
using namespace tandem::storage;
using Bytes = std::span<const std::byte>;

namespace {

void expect_equal(Bytes found, Bytes wanted) {
  if (!std::ranges::equal(found, wanted)) std::abort();
}

/// The bytes as a payload, and what they hold as a record, survive writing.
void check_round_trip(Bytes payload) {
  std::vector<std::byte> file, joined;
  append_record(payload, file);
  const auto record = read_record(file, 0, joined, "fuzz");
  expect_equal(record.payload, payload);
  if (record.end != file.size()) std::abort();
  try {
    expect_equal(pack_image_record(parse_image_record(payload)), payload);
  } catch (const tandem::DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes file(reinterpret_cast<const std::byte*>(data), size);
  check_round_trip(file);
  try {
    const auto places = index_records(file, "fuzz");
    std::vector<std::byte> joined;
    for (const auto& place : places) check_round_trip(read_record(file, place.offset, joined, "fuzz").payload);
    for (const auto& face : list_faces(file, places, 100, "fuzz")) {
      if (face.label < 0 || face.label >= 100) std::abort();
    }
  } catch (const tandem::DataError&) {
  }
  try {
    const auto places = parse_record_index(file, "fuzz");
    if (!std::ranges::is_sorted(places, {}, &RecordPlace::key)) std::abort();
    if (places.size() <= 16) list_faces(file, places, 0, "fuzz");
  } catch (const tandem::DataError&) {
  }
  try {
    parse_face_property(file, "fuzz");
  } catch (const tandem::DataError&) {
  }
  return 0;
}
