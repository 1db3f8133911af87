#include "tandem/data/dataset.h"

#include <c10/util/Exception.h>

namespace tandem::data {

void Dataset::check_read(int64_t index, std::span<uint8_t> pixels) const {
  TORCH_CHECK_INDEX(index >= 0 && index < size(), "sample index is ", index, ", wanted 0..", size() - 1);
  const auto [channels, height, width] = image_shape();
  const auto wanted = static_cast<size_t>(channels * height * width);
  TORCH_CHECK_VALUE(pixels.size() == wanted, "pixel buffer is ", pixels.size(), " bytes, wanted ", wanted);
}

void Dataset::note_oddity(int64_t index, const std::string& name, const std::string& oddity) const {
  if (!oddity.empty()) odd_samples_.add(index, name + ": " + oddity);
}

}  // namespace tandem::data
