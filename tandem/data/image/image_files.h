#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem::data {

struct ImageFile {
  std::filesystem::path path;
  int64_t label;
};

/// What ImageFiles is made of.
struct ImageFileList {
  std::vector<ImageFile> files = {};
  int64_t num_classes = 0;
  std::shared_ptr<const std::vector<std::string>> names = nullptr;  // of the classes; none: their numbers
  int64_t height = 0, width = 0;
  std::string description = {};
};

/// Images in files, decoded when read and scaled to height x width (each side by itself), three channels.
class ImageFiles final : public Dataset {
 public:
  explicit ImageFiles(ImageFileList list) : list_(std::move(list)) {}

  int64_t size() const override { return static_cast<int64_t>(list_.files.size()); }
  int64_t num_classes() const override { return list_.num_classes; }
  std::array<int64_t, 3> image_shape() const override { return {3, list_.height, list_.width}; }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override;
  std::string class_name(int64_t label) const override;
  std::string describe() const override { return list_.description; }

 private:
  ImageFileList list_;
};

/// Looks at a file's header. Throws DataError that names the file (no image, too large, cut short), IoError.
void check_image_file(const std::filesystem::path& file);

/// Whether a file's name ends as those of JPEG and PNG files do: .jpg, .jpeg, .png, in upper or lower case.
bool has_image_name(const std::filesystem::path& file);

/// Whether a file begins as JPEG and PNG files do. Throws IoError.
bool is_image_file(const std::filesystem::path& file);

/// A side that images may be scaled to.
constexpr bool is_image_side(int64_t pixels) { return pixels >= 8 && pixels <= 1024; }

/// Throws SettingsError unless is_image_side().
void check_image_side(const std::string& setting, int64_t pixels);

/// Throws IndexError unless `label` is 0..num_classes-1.
void check_class(int64_t label, int64_t num_classes);

}  // namespace tandem::data
