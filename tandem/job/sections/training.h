#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "tandem/train/loss_scale.h"

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
  bool fixes_threads = false;     // shards, and the threads of a rank were not given: one
  double clip = 0;                // largest norm of the gradients; 0: no clipping
  double ema = 0;                 // decay of the weights' averages; 0: there are none
  int64_t skip_nonfinite = 0;     // how many steps in a row may be skipped
  Precision precision;
  std::optional<train::LossScaleOptions> loss_scale;  // of float16
  int64_t log_every = 0;

  /// A step that has been computed may be left out: its buffers are kept until its gradients are known.
  bool may_leave_out() const { return skip_nonfinite > 0 || (loss_scale && loss_scale->is_dynamic); }
  int64_t micro_batches(int ranks) const { return shards > 0 ? shards / ranks : accumulate; }
};

}  // namespace tandem::job
