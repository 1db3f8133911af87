#pragma once
#include "tandem/base/rng.h"
#include "tandem/data/dataset.h"

namespace tandem::test {

/// A hundred images of noise with a pattern for each of eleven classes: learnable, and made of nothing but its index.
class Patterns : public data::Dataset {
 public:
  int64_t size() const override { return 100; }
  int64_t num_classes() const override { return 11; }
  std::array<int64_t, 3> image_shape() const override { return {1, 8, 8}; }
  std::string class_name(int64_t label) const override { return std::to_string(label); }
  std::string describe() const override { return "patterns"; }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    const int64_t label = index % num_classes();
    CounterRng pattern(1, 7, label), noise(2, 7, index);
    for (auto& pixel : pixels) pixel = static_cast<uint8_t>(pattern.uniform(0, 200) + noise.uniform(0, 50));
    return label;
  }
};

}  // namespace tandem::test
