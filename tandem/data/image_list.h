#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/image/image_planes.h"

namespace tandem::data {

/// Images without labels: the files `paths`, in this order, and for a folder the JPEGs and PNGs in it and in its
/// sub-folders, sorted by path. All have label 0 of one class. Opens every file once to check its header; pixels are
/// decoded when read. Memory: the paths.
/// Throws DataError, naming the path: it does not exist, is no image, is a folder without images, is damaged; and for
/// an empty list.
std::unique_ptr<Dataset> image_list(const std::vector<std::filesystem::path>& paths, const ImageForm& form);

}  // namespace tandem::data
