#pragma once
#include <string>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// Labelled images that lie in memory: what another program has loaded or made.
class TensorDataset : public Dataset {
 public:
  ///   images  [N, C, H, W]  uint8
  ///   labels  [N]           int64, 0..num_classes-1
  /// Throws c10::TypeError (types), c10::ValueError (shapes, num_classes), DataError (label). Memory: that of the two
  /// tensors, which are not copied if they are contiguous and on the CPU.
  TensorDataset(const Tensor& images, const Tensor& labels, int64_t num_classes);

  int64_t size() const override { return labels_.size(0); }
  int64_t num_classes() const override { return num_classes_; }
  std::array<int64_t, 3> image_shape() const override;
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override;
  std::string class_name(int64_t label) const override { return std::to_string(label); }
  std::string describe() const override;

 private:
  Tensor images_, labels_;
  int64_t num_classes_;
};

}  // namespace tandem::data
