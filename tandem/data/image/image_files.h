#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/image/image_decoder.h"
#include "tandem/data/image/image_planes.h"

namespace tandem::data {

struct ImageFile {
  std::filesystem::path path;
  int64_t label;
};

/// The parameters of ImageFiles.
struct ImageFileList {
  std::vector<ImageFile> files = {};
  int64_t num_classes = 0;
  std::shared_ptr<const std::vector<std::string>> names = nullptr;  // of the classes; null: use their numbers
  ImageForm form = {};
  std::string description = {};
};

/// Images in files, decoded by read_planes() when read.
class ImageFiles final : public Dataset {
 public:
  explicit ImageFiles(ImageFileList list) : list_(std::move(list)) {}

  int64_t size() const override { return static_cast<int64_t>(list_.files.size()); }
  int64_t num_classes() const override { return list_.num_classes; }
  std::array<int64_t, 3> image_shape() const override {
    return {num_planes(list_.form), list_.form.height, list_.form.width};
  }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override { return read(index, pixels, nullptr); }
  int64_t read_cropped(int64_t index, const RandomCrop& crop, std::span<uint8_t> pixels) const override {
    return read(index, pixels, &crop);
  }
  std::string class_name(int64_t label) const override;
  std::string sample_name(int64_t index) const override { return list_.files.at(index).path.string(); }
  std::string describe() const override { return list_.description; }

 private:
  int64_t read(int64_t index, std::span<uint8_t> pixels, const RandomCrop* crop) const;

  ImageFileList list_;
};

/// Checks a file's header and returns it. Throws DataError naming the file (not an image, too large, cut short),
/// IoError.
ImageHeader check_image_file(const std::filesystem::path& file);

/// True if a file's name ends in .jpg, .jpeg or .png, in upper or lower case.
bool has_image_name(const std::filesystem::path& file);

/// True if a file begins like a JPEG or a PNG. Throws IoError.
bool is_image_file(const std::filesystem::path& file);

/// True if images may be scaled to this side.
constexpr bool is_image_side(int64_t pixels) { return pixels >= 8 && pixels <= 1024; }

/// Throws SettingsError unless is_image_side().
void check_image_side(const std::string& setting, int64_t pixels);

/// Throws IndexError unless `label` is 0..num_classes-1.
void check_class(int64_t label, int64_t num_classes);

}  // namespace tandem::data
