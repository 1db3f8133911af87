#pragma once
#include "tandem/base/tensor.h"

namespace tandem {

/// The best classes of each of n samples, best first.
struct Ranking {
  Tensor classes;  // [n, k] int64
  Tensor scores;   // [n, k] probabilities over all classes
};

}  // namespace tandem
