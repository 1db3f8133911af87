#include "tandem/parallel/gradient_sync.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace tandem::parallel {

void GradientSync::take_gradients(flight::Where) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "this strategy sums gradients in backward, wanted one that takes them after it");
}

double GradientSync::Overlap::hidden() const {
  return travelled > 0 ? std::clamp(1 - waited / travelled, 0.0, 1.0) : 1.0;
}

}  // namespace tandem::parallel
