#include "tandem/data/tensor_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/format.h"

namespace tandem::data {

TensorDataset::TensorDataset(const Tensor& images, const Tensor& labels, int64_t num_classes)
    : num_classes_(num_classes) {
  TORCH_CHECK_TYPE(images.scalar_type() == at::kByte, "images are ", images.scalar_type(), ", wanted uint8");
  TORCH_CHECK_TYPE(labels.scalar_type() == at::kLong, "labels are ", labels.scalar_type(), ", wanted int64");
  TORCH_CHECK_VALUE(images.dim() == 4 && images.size(0) > 0, "images are ", images.sizes(),
                    ", wanted [N, channels, height, width] of at least one image");
  TORCH_CHECK_VALUE(labels.dim() == 1 && labels.size(0) == images.size(0), "labels are ", labels.sizes(), " for ",
                    images.size(0), " images, wanted [", images.size(0), "]");
  TORCH_CHECK_VALUE(num_classes > 0, "num_classes is ", num_classes, ", wanted 1 or more");
  images_ = images.cpu().contiguous();
  labels_ = labels.cpu().contiguous();
  const std::span all(labels_.const_data_ptr<int64_t>(), static_cast<size_t>(size()));
  const auto wrong = std::ranges::find_if(all, [&](int64_t label) { return label < 0 || label >= num_classes; });
  if (wrong == all.end()) return;
  throw DataError("labels[" + std::to_string(wrong - all.begin()) + "] is " + std::to_string(*wrong) + ", wanted 0.." +
                      std::to_string(num_classes - 1),
                  "correct the label, or raise num_classes");
}

std::array<int64_t, 3> TensorDataset::image_shape() const {
  return {images_.size(1), images_.size(2), images_.size(3)};
}

int64_t TensorDataset::read(int64_t index, std::span<uint8_t> pixels) const {
  check_read(index, pixels);
  const auto bytes = static_cast<int64_t>(pixels.size());
  std::copy_n(images_.const_data_ptr<uint8_t>() + index * bytes, bytes, pixels.begin());
  return labels_.const_data_ptr<int64_t>()[index];
}

std::string TensorDataset::describe() const {
  return "tensors  " + format_count(num_classes()) + " classes · " + format_count(size()) + " images in memory";
}

}  // namespace tandem::data
