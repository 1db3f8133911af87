#pragma once
#include <array>
#include <cstdint>

#include "tandem/data/dataset.h"

namespace tandem::data {

/// Random images with meaningless labels, for benchmarks. Image i depends on i alone; its label is i * 7919 mod
/// classes, so that a batch has classes from the whole range. There is no test set.
struct SyntheticOptions {
  int64_t classes = 1000;
  std::array<int64_t, 3> shape = {3, 32, 32};  // channels, height, width
  int64_t images = 1 << 16;
};

/// Throws SettingsError for numbers that are not positive. Memory: none.
Split synthetic(const SyntheticOptions& options);

}  // namespace tandem::data
