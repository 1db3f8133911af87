#include "tandem/data/verification_pairs.h"

#include <algorithm>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/data/image/image_decoder.h"
#include "tandem/data/image/image_files.h"
#include "tandem/data/record/pickled_pairs.h"
#include "tandem/storage/mapped_file.h"

namespace tandem::data {
namespace {

class PairImages final : public Dataset {
  std::string name_of(int64_t index) const { return "'" + name_ + "': images[" + std::to_string(index) + "]"; }

  /// Returns use(bytes of image `index`) and puts the image's place before the text of a DataError.
  template <class Use>
  auto with_image(int64_t index, Use use) const {
    std::vector<std::byte> decoded;
    try {
      return use(plain_bytes(images_[static_cast<size_t>(index)], decoded));
    } catch (const DataError& error) {
      throw DataError(name_of(index) + " " + error.what());
    }
  }

 public:
  PairImages(storage::MappedFile file, std::vector<PickledBytes> images, const VerificationPairsOptions& options)
      : file_(std::move(file)),
        images_(std::move(images)),
        name_(options.file.string()),
        form_(with_sides(options.form, options.size, options.size)) {
    for (int64_t i = 0; i < size(); ++i) with_image(i, read_image_header);
  }

  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  int64_t num_classes() const override { return size() / 2; }
  std::array<int64_t, 3> image_shape() const override { return {num_planes(form_), form_.height, form_.width}; }

  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    const auto read = [&](std::span<const std::byte> image) { return read_planes(image, form_, pixels); };
    note_oddity(index, name_of(index), with_image(index, read));
    return index / 2;
  }

  std::string class_name(int64_t label) const override {
    check_class(label, num_classes());
    return "pair " + std::to_string(label);
  }

  std::string describe() const override { return "pairs    " + format_count(num_classes()) + " from " + name_; }

 private:
  storage::MappedFile file_;
  std::vector<PickledBytes> images_;
  std::string name_;
  ImageForm form_;
};

}  // namespace

VerificationPairs verification_pairs(const VerificationPairsOptions& options) {
  check_image_side("size", options.size);
  storage::MappedFile file(options.file);
  auto [images, same] = parse_pickled_pairs(file.bytes(), options.file.string());
  const auto num_same = std::ranges::count(same, true);
  VerificationPairs pairs;
  pairs.images = std::make_unique<PairImages>(std::move(file), std::move(images), options);
  pairs.same = std::move(same);
  pairs.summary = pairs.images->describe() + " · same: " + format_count(num_same);
  return pairs;
}

}  // namespace tandem::data
