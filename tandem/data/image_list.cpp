#include "tandem/data/image_list.h"

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/quote.h"
#include "tandem/data/image/class_folder.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

void add_folder(const fs::path& folder, ImageSamples& samples, PassedOver& passed_over) {
  const auto files = list_images(folder, passed_over);
  if (files.empty()) throw DataError("folder " + quote(folder.string()) + " has no JPEG and no PNG");
  for (const auto& file : files) samples.push_back({file, 0});
}

}  // namespace

std::unique_ptr<Dataset> image_list(const std::vector<fs::path>& paths, const ImageForm& form) {
  if (paths.empty()) throw DataError("no image is given, wanted an image or a folder of images");
  ImageFileList list{.num_classes = 1, .form = form};
  PassedOver passed_over;
  for (const auto& path : paths) {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      throw DataError("image " + quote(path.string()) + " does not exist, wanted an image or a folder of images");
    }
    fs::is_directory(path, ignored) ? add_folder(path, list.files, passed_over) : list.files.push_back({path, 0});
  }
  for (const auto& file : list.files) check_image_file(file.path);
  list.description =
      "images   " + format_count(static_cast<int64_t>(list.files.size())) + " without labels" + text_of(passed_over);
  return std::make_unique<ImageFiles>(std::move(list));
}

}  // namespace tandem::data
