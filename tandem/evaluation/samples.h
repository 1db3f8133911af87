#pragma once
#include "tandem/base/tensor.h"

namespace tandem::evaluation {

/// This rank's part of a set of samples. The whole set is rank 0's rows, then rank 1's, and so on: its global order.
///   features  [n, D]  float32 or float64, finite, on the CPU; a rank may hold none: [0, D]
///   identity  [n]     int64, 0 or more; -1: nobody's (junk in a gallery, a query without a match)
///   camera    [n]     int64; undefined: no cameras. On all ranks or on none.
///
/// The similarity of two samples is defined apart from any BLAS: the sum of their products in float64, in one order,
/// times 1/|a| and 1/|b| when features are normalised (a row of zeros is like nothing: 0). It does not depend on the
/// number of ranks, on a block's shape or on where in it a sample lies, so that equal samples are true ties. Matrix
/// products in the features' type decide only where their rounding cannot matter; the few pairs too near to something
/// they are compared with are worked out again by the definition.
struct Samples {
  Tensor features, identity, camera;
};

}  // namespace tandem::evaluation
