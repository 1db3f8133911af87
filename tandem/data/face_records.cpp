#include "tandem/data/face_records.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/data/image/hold_out.h"
#include "tandem/data/image/image_decoder.h"
#include "tandem/data/image/image_files.h"
#include "tandem/data/record/face_list.h"
#include "tandem/data/record/image_record.h"
#include "tandem/storage/mapped_file.h"
#include "tandem/storage/record_io.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Shared by the training and the test set.
struct Records {
  explicit Records(const fs::path& path) : file(path), name(path.string()) {}

  storage::MappedFile file;
  std::string name;
  int64_t num_classes = 0;
  ImageForm form;
};

using FaceSamples = std::vector<FaceSample>;

class FaceRecords final : public Dataset {
 public:
  FaceRecords(std::shared_ptr<const Records> records, FaceSamples samples)
      : records_(std::move(records)), samples_(std::move(samples)) {}

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  int64_t num_classes() const override { return records_->num_classes; }
  std::array<int64_t, 3> image_shape() const override {
    return {num_planes(records_->form), records_->form.height, records_->form.width};
  }

  int64_t read(int64_t index, std::span<uint8_t> pixels) const override { return read(index, pixels, nullptr); }
  int64_t read_cropped(int64_t index, const RandomCrop& crop, std::span<uint8_t> pixels) const override {
    return read(index, pixels, &crop);
  }

  std::string class_name(int64_t label) const override {
    check_class(label, num_classes());
    return std::to_string(label);
  }

  std::string describe() const override {
    return "faces    " + format_count(num_classes()) + " classes · " + format_count(size()) + " images from " +
           records_->name;
  }

 private:
  int64_t read(int64_t index, std::span<uint8_t> pixels, const RandomCrop* crop) const {
    check_read(index, pixels);
    const auto& sample = samples_[static_cast<size_t>(index)];
    const auto decode = [&](const ImageRecord& record) {
      return read_planes(record.image, records_->form, pixels, crop);
    };
    const auto oddity = with_image_record(records_->file.bytes(), sample.offset, records_->name, decode);
    note_oddity(index, "'" + records_->name + "': record[byte " + std::to_string(sample.offset) + "]", oddity);
    return sample.label;
  }

  std::shared_ptr<const Records> records_;
  FaceSamples samples_;
};

/// Height and width of an image as a data set gives it.
std::pair<int64_t, int64_t> sides_of(const ImageRecord& record, Orientation orientation) {
  const auto image = decode_image(record.image);
  const bool lies = image.turn.transposed && orientation == Orientation::exif;
  return lies ? std::pair(image.width, image.height) : std::pair(image.height, image.width);
}

/// Height and width by the rule that FaceRecordOptions::size states.
std::pair<int64_t, int64_t> image_sides(const Records& records, const FaceSample& first,
                                        const FaceRecordOptions& options, const std::optional<FaceProperty>& property) {
  if (options.size > 0) return {options.size, options.size};
  const auto sides_of_first = [&] {
    return with_image_record(records.file.bytes(), first.offset, records.name,
                             [&](const ImageRecord& record) { return sides_of(record, options.form.orientation); });
  };
  const auto sides = property ? std::pair(property->height, property->width) : sides_of_first();
  if (!is_image_side(sides.first) || !is_image_side(sides.second)) {
    throw DataError("'" + records.name + "' " + (property ? "says in property" : "begins with") +
                        " an image of height " + std::to_string(sides.first) + " and width " +
                        std::to_string(sides.second) + ", wanted 8..1024",
                    "set size to the side wanted");
  }
  return sides;
}

/// Splits by the rule of hold_out.h; the images of a class are counted in the order of their keys.
std::pair<FaceSamples, FaceSamples> hold_out(FaceSamples samples, int64_t num_classes, int64_t every) {
  if (every == 0) return {std::move(samples), FaceSamples()};
  std::vector<int32_t> count(static_cast<size_t>(num_classes)), seen(count.size());
  for (const auto& sample : samples) ++count[static_cast<size_t>(sample.label)];
  FaceSamples train, test;
  for (const auto& sample : samples) {
    const auto label = static_cast<size_t>(sample.label);
    (is_held_out(seen[label]++, count[label], every) ? test : train).push_back(sample);
  }
  return {std::move(train), std::move(test)};
}

void check(const FaceRecordOptions& options) {
  if (options.size != 0) check_image_side("size", options.size);
  check_optional_hold_out(options.hold_out);
  if (!is_file(options.folder / "train.rec")) {
    throw DataError("folder '" + options.folder.string() + "' has no file train.rec, wanted one of image records");
  }
}

/// A note for the summary; "" if the images keep the property's size.
std::string scaling_text(const Records& records, const std::optional<FaceProperty>& property) {
  if (!property || (property->height == records.form.height && property->width == records.form.width)) return "";
  const auto size = [](int64_t height, int64_t width) {
    return std::to_string(height) + " x " + std::to_string(width);
  };
  const bool can_stay = property->height == property->width && is_image_side(property->height);
  return " · scaled from " + size(property->height, property->width) + " to " +
         size(records.form.height, records.form.width) +
         (can_stay ? ", size=" + std::to_string(property->height) + " keeps them" : "");
}

}  // namespace

std::optional<FaceProperty> face_property(const fs::path& folder) {
  const auto path = folder / "property";
  if (!is_file(path)) return std::nullopt;
  return parse_face_property(storage::MappedFile(path).bytes(), path.string());
}

std::optional<int64_t> face_side(const fs::path& folder) {
  const auto property = face_property(folder);
  const bool fits = property && property->height == property->width && is_image_side(property->height);
  return fits ? std::optional(property->height) : std::nullopt;
}

Split face_records(const FaceRecordOptions& options) {
  check(options);
  const auto records = std::make_shared<Records>(options.folder / "train.rec");
  const auto bytes = records->file.bytes();
  const auto index_path = options.folder / "train.idx";
  const auto property = face_property(options.folder);
  auto samples = [&] {
    const auto places = is_file(index_path)
                            ? storage::parse_record_index(storage::MappedFile(index_path).bytes(), index_path.string())
                            : storage::index_records(bytes, records->name);
    return list_faces(bytes, places, property ? property->classes : 0, records->name);
  }();
  records->num_classes = property ? property->classes : std::ranges::max(samples, {}, &FaceSample::label).label + 1;
  const auto [height, width] = image_sides(*records, samples.front(), options, property);
  records->form = with_sides(options.form, height, width);

  auto [train, test] = hold_out(std::move(samples), records->num_classes, options.hold_out);
  if (test.empty() && options.hold_out > 0) {
    throw DataError("'" + records->name + "' has one image a class, wanted two to hold one out",
                    "add images, or set hold_out=0");
  }
  const std::string held =
      options.hold_out > 0 ? "1 of " + std::to_string(options.hold_out) + " of each class" : "none";
  Split split;
  split.train = std::make_unique<FaceRecords>(records, std::move(train));
  if (options.hold_out > 0) split.test = std::make_unique<FaceRecords>(records, std::move(test));
  split.summary = split.train->describe() + " · held out: " + held + scaling_text(*records, property);
  return split;
}

}  // namespace tandem::data
