#pragma once
#include "tandem/base/tensor.h"

namespace tandem::evaluation {

/// This rank's part of a set of samples. The whole set is rank 0's rows, then rank 1's, and so on: its global order.
///   features  [n, D]  float32 or float64, finite, on the CPU; a rank may hold none: [0, D]
///   identity  [n]     int64, 0 or more; -1: no identity (junk in a gallery, a query without a match)
///   camera    [n]     int64; undefined: no cameras. Must be defined on all ranks or on none.
///
/// The similarity of two samples is defined independently of any BLAS: the sum of the products of their elements in
/// float64, in a fixed order, times 1/|a| and 1/|b| if features are normalised (the similarity with a row of zeros is
/// 0). It does not depend on the number of ranks, on a block's shape or on a sample's place in it, so that equal
/// samples are true ties. Matrix products in the features' type decide only comparisons that their rounding cannot
/// change; for the few pairs that are too close, the similarity is computed again by the definition.
struct Samples {
  Tensor features, identity, camera;
};

}  // namespace tandem::evaluation
