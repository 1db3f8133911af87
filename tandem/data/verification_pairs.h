#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/image/image_planes.h"

namespace tandem::data {

/// A verification set as InsightFace packs LFW, CFP-FP and AgeDB-30: a .bin file, which is a pickle of encoded images
/// and of one bool per pair, true if both images show the same person.
struct VerificationPairsOptions {
  std::filesystem::path file = {};
  int64_t size = 112;   // images are scaled to size x size, 8..1024
  ImageForm form = {};  // its height and width are replaced by `size`
};

struct VerificationPairs {
  std::unique_ptr<Dataset> images;  // 2 * same.size() images; 2i and 2i + 1 are pair i and have label i
  std::vector<bool> same;           // one per pair
  std::string summary;
};

/// Maps the file and checks each image's header; pixels are decoded when read. Memory: 32 bytes an image.
/// Throws SettingsError (size), DataError (another kind of pickle, an invalid image header), IoError.
VerificationPairs verification_pairs(const VerificationPairsOptions& options);

}  // namespace tandem::data
