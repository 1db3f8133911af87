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
  int64_t shards = 0;             // of a step, for the same bits on every number of ranks; 0: not
  double clip = 0;                // largest norm of the gradients; 0: no clipping
  int64_t skip_nonfinite = 0;     // how many steps in a row may be skipped
  Precision precision;
  int64_t log_every = 0;

  int64_t micro_batches(int ranks) const { return shards > 0 ? shards / ranks : accumulate; }
};

}  // namespace tandem::job
