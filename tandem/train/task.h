#pragma once
#include <optional>
#include <span>
#include <vector>

#include "tandem/base/rows.h"
#include "tandem/data/dataset.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

struct RowParameter {
  size_t place = 0;                // in Task::parameters()
  bool steps_in_backward = false;  // row by row, without a gradient of the whole
  bool moves_all_rows = false;     // those without a gradient move too, see Optimizer::move_all_rows()
};

/// What the loop trains, on one rank: a model with its loss. Knows nothing of files or schedules.
class Task {
 public:
  virtual ~Task() = default;

  /// Training is about to take step `step`, counted from 0 over all runs of the job.
  virtual void begin_step(int64_t step) {}

  /// The mean loss over the global batch, equal on all ranks; the gradients of replicated parameters are this rank's
  /// share of a sum. `sizes`: samples of each rank. Collective.
  virtual Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) = 0;

  /// The features of each of this rank's samples, [n, D], without gradient. Not collective.
  virtual Tensor embed(const data::Batch& batch) = 0;

  /// The k best classes of each of this rank's samples, [n, k] int64. Collective.
  virtual Tensor top_k(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) = 0;

  /// Batch statistics are gathered (true) or used as they are (false).
  virtual void set_training(bool training) = 0;

  virtual std::vector<Parameter> parameters() const = 0;
  virtual std::vector<Buffer> buffers() const = 0;

  /// Parameters, then buffers: what a trained model is.
  std::vector<Parameter> weights() const;

  /// A parameter whose rows have a life of their own; nothing: all are stepped as a whole.
  virtual std::optional<RowParameter> row_parameter() const { return std::nullopt; }

  /// Before each training step, where row_parameter() says something. `update` takes its gradient during backward, and
  /// it has none afterwards; empty: it has one. `read` is to be told of rows before the loss reads them. After the step
  /// both are set to nothing: what they call may be gone then.
  virtual void set_row_hooks(RowUpdate update, RowsRead read) {}
};

}  // namespace tandem::train
