#include "tandem/parallel/gradient_sync.h"

#include <algorithm>

namespace tandem::parallel {

double GradientSync::Overlap::hidden() const {
  return travelled > 0 ? std::clamp(1 - waited / travelled, 0.0, 1.0) : 1.0;
}

}  // namespace tandem::parallel
