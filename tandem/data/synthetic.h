#pragma once
#include <array>
#include <cstdint>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// Noise with labels that mean nothing: to measure with. Image i is drawn from i; its label is i * 7919 mod classes, so
/// that a batch meets classes all over. No test set.
struct SyntheticOptions {
  int64_t classes = 1000;
  std::array<int64_t, 3> shape = {3, 32, 32};  // channels, height, width
  int64_t images = 1 << 16;
};

/// Throws SettingsError for numbers that are not positive. Memory: none.
Split synthetic(const SyntheticOptions& options);

}  // namespace tandem::data
