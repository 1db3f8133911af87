#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/train/checkpoint_store.h"

namespace tandem::train {

/// A tensor that training changes. Without `rows` every rank holds the same; with it, this rank holds those rows of a
/// tensor that is split over the ranks.
struct Parameter {
  std::string name;
  Tensor tensor;
  std::optional<RowRange> rows;
};

/// A tensor that forward changes (running statistics); rank 0's counts.
using Buffer = NamedTensor;

}  // namespace tandem::train
