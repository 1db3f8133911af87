#include "tandem/data/image/image_files.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/storage/mapped_file.h"

namespace tandem::data {
namespace {

std::string name_of(const std::filesystem::path& file) { return "image '" + file.string() + "'"; }

/// Calls an image reader and puts the file's name before the text of a DataError.
template <class Read>
auto with_name(const std::filesystem::path& file, Read read) {
  try {
    return read();
  } catch (const DataError& error) {
    throw DataError(name_of(file) + " " + error.what());
  }
}

}  // namespace

int64_t ImageFiles::read(int64_t index, std::span<uint8_t> pixels, const RandomCrop* crop) const {
  check_read(index, pixels);
  const auto& [path, label] = list_.files[static_cast<size_t>(index)];
  const storage::MappedFile mapped(path);
  const auto decode = [&] { return read_planes(mapped.bytes(), list_.form, pixels, crop); };
  note_oddity(index, name_of(path), with_name(path, decode));
  return label;
}

std::string ImageFiles::class_name(int64_t label) const {
  check_class(label, num_classes());
  return list_.names ? (*list_.names)[static_cast<size_t>(label)] : std::to_string(label);
}

bool has_image_name(const std::filesystem::path& file) {
  auto extension = file.extension().string();
  std::ranges::transform(extension, extension.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c; });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

bool is_image_file(const std::filesystem::path& file) { return is_image(storage::MappedFile(file).bytes()); }

ImageHeader check_image_file(const std::filesystem::path& file) {
  const storage::MappedFile mapped(file);
  return with_name(file, [&] { return read_image_header(mapped.bytes()); });
}

void check_image_side(const std::string& setting, int64_t pixels) {
  if (!is_image_side(pixels)) {
    throw SettingsError(setting + " is " + std::to_string(pixels) + ", wanted 8..1024");
  }
}

void check_class(int64_t label, int64_t num_classes) {
  TORCH_CHECK_INDEX(label >= 0 && label < num_classes, "class is ", label, ", wanted 0..", num_classes - 1);
}

}  // namespace tandem::data
