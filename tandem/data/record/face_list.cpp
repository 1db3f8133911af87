#include "tandem/data/record/face_list.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/data/image/image_decoder.h"
#include "tandem/data/record/image_record.h"

namespace tandem::data {
namespace {

std::string text_of(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
  return text;
}

/// Parses exactly three whole numbers separated by commas.
bool parse_numbers(std::string_view text, std::array<int64_t, 3>& numbers) {
  const char* at = text.data();
  const char* end = at + text.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != ',')) return false;
    const auto [stop, fault] = std::from_chars(at, end, numbers[i]);
    if (fault != std::errc()) return false;
    at = stop;
  }
  return at == end;
}

/// Which keys are images.
struct ImageKeys {
  bool has_header = false;
  bool end_is_known = false;
  uint64_t end = std::numeric_limits<uint64_t>::max();  // first key that is no image
};

ImageKeys keys_of(const ImageRecord& record_0) {
  if (record_0.labels.size() != 2 || !record_0.image.empty()) return {};
  const float end = record_0.labels[0];
  if (!(end >= 1) || std::trunc(end) != end) {
    throw DataError("is a header whose first label is " + text_of(end) + ", wanted a key from 1 up");
  }
  if (end >= static_cast<float>(kMaxFaceClasses)) return {.has_header = true};
  return {.has_header = true, .end_is_known = true, .end = static_cast<uint64_t>(end)};
}

int32_t label_of(const ImageRecord& record, int64_t num_classes) {
  const float label = record.labels.empty() ? record.label : record.labels[0];
  if (!(label >= 0 && label < static_cast<float>(num_classes)) || std::trunc(label) != label) {
    throw DataError("label is " + text_of(label) + ", wanted a whole number in 0.." + std::to_string(num_classes - 1),
                    "mend the record, or the number of classes in property");
  }
  return static_cast<int32_t>(label);
}

}  // namespace

FaceProperty parse_face_property(std::span<const std::byte> file, std::string_view name) {
  std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  text = text.substr(0, text.find_last_not_of(" \r\n") + 1);
  std::array<int64_t, 3> numbers{};
  if (!parse_numbers(text, numbers) || numbers[0] < 1 || numbers[0] > kMaxFaceClasses) {
    throw DataError("'" + std::string(name) + "' is not what is wanted: classes,height,width, with 1..16777216 classes",
                    "mend it, as in 85742,112,112, or remove it");
  }
  return {numbers[0], numbers[1], numbers[2]};
}

std::vector<FaceSample> list_faces(std::span<const std::byte> records, std::span<const storage::RecordPlace> places,
                                   int64_t num_classes, std::string_view name) {
  const bool may_have_header = !places.empty() && places.front().key == 0;
  const auto keys = may_have_header ? with_image_record(records, places.front().offset, name, keys_of) : ImageKeys();
  const int64_t limit = num_classes > 0 ? num_classes : kMaxFaceClasses;
  std::vector<FaceSample> samples;
  for (const auto& [key, offset] : places) {
    if ((keys.has_header && key == 0) || key >= keys.end) continue;
    with_image_record(records, offset, name, [&, offset = offset](const ImageRecord& record) {
      if (keys.has_header && !keys.end_is_known && record.image.empty()) return;
      read_image_header(record.image);
      samples.push_back({offset, label_of(record, limit)});
    });
  }
  if (keys.end_is_known && samples.size() != keys.end - 1) {
    throw DataError("'" + std::string(name) + "' has " + std::to_string(samples.size()) +
                        " images in its index, wanted " + std::to_string(keys.end - 1) + " as record 0 says",
                    "remove train.idx, and the records are indexed anew, or use another copy");
  }
  if (samples.empty()) throw DataError("'" + std::string(name) + "' has no images, wanted at least one");
  return samples;
}

}  // namespace tandem::data
