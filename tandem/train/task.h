#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

/// What the loop trains, on one rank: a model with its loss. Knows nothing of files or schedules.
class Task {
 public:
  virtual ~Task() = default;

  /// Training is about to take step `step`, counted from 0 over all runs of the job.
  virtual void begin_step(int64_t step) {}

  /// The mean loss over the global batch, equal on all ranks; the gradients of replicated parameters are this rank's
  /// share of a sum. `sizes`: samples of each rank. Collective.
  virtual Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) = 0;

  /// The k best classes of each of this rank's samples, [n, k] int64. Collective.
  virtual Tensor top_k(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) = 0;

  /// Batch statistics are gathered (true) or used as they are (false).
  virtual void set_training(bool training) = 0;

  virtual std::vector<Parameter> parameters() const = 0;
  virtual std::vector<Buffer> buffers() const = 0;

  /// The place in parameters() of one that is updated row by row during backward and has no gradient afterwards; the
  /// trainer then gives an update before each backward. Nothing: all have gradients.
  using RowUpdate = std::function<void(int64_t begin, const Tensor& gradient)>;
  virtual std::optional<size_t> row_updated() const { return std::nullopt; }
  virtual void set_row_update(RowUpdate update) {}
};

}  // namespace tandem::train
