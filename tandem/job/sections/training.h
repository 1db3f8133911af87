#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace tandem::job {

/// The precision of a training step.
struct Precision {
  at::ScalarType type = at::kFloat;        // of weights, sums and losses
  std::optional<at::ScalarType> products;  // of the factors of the backbone's products; nullopt: `type`
};

/// The loop over steps.
struct Training {
  int64_t epochs = 0, steps = 0;  // steps 0: as many as the epochs have
  int64_t batch = 0;              // images per step, over all ranks
  int64_t accumulate = 1;         // micro-batches of a step
  double clip = 0;                // largest norm of the gradients; 0: no clipping
  int64_t skip_nonfinite = 0;     // how many steps in a row may be skipped
  Precision precision;
  int64_t log_every = 0;
};

}  // namespace tandem::job
