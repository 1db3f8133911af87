#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "tandem/base/ranking.h"
#include "tandem/base/rows.h"
#include "tandem/base/tensor.h"
#include "tandem/parallel/parameter.h"

namespace tandem::classifier {

class ClassShardedHead;

/// A classifier over the features of a batch that the ranks of a group share. Each rank brings the features of its own
/// samples; how the classes and the work are divided is the implementation's.
class Head {
 public:
  virtual ~Head() = default;

  /// Mean cross entropy over the global batch, equal on all ranks; see sharded_softmax_loss(). The gradient of the
  /// features is that of this rank's rows. Collective.
  ///   features  [n_r, D]  this rank's rows         targets  [n_r]  int64, -1 leaves a row out; on the CPU, or a device
  ///                                                                  that is waited for
  ///   sizes     n_r of every rank
  virtual Tensor loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) = 0;

  /// The k best classes of each of this rank's rows (k at most the number of classes), of equal ones any, and their
  /// softmax over all classes, without a margin. Memory: twice the scores of a block of classes. Collective.
  virtual Ranking top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) = 0;

  /// The margin's softening from now on; see Margin.
  virtual void set_softening(double softening) = 0;

  /// What the next loss samples its classes by; while not training all are scored.
  virtual void set_step(int64_t step) = 0;
  virtual void set_training(bool training) = 0;

  /// From now on loss() returns this rank's term of the mean over all rows, targets of -1 included as zeros, and sends
  /// nothing. Throws SettingsError, naming `staleness`, if the classes are split.
  virtual void run_apart() = 0;

  /// From now on backward gives the weight's gradient to `update`, rows counted from this rank's first, and none is
  /// kept: 4 bytes a weight less. Empty: back to a gradient. A form whose gradient is not final in backward refuses it
  /// in its loss: c10::ValueError.
  virtual void set_row_update(RowUpdate update) = 0;

  /// From now on `read` is told of sampled rows before they are.
  virtual void set_rows_read(RowsRead read) = 0;

  /// This rank's part of the classes, where they are split; null: they are not.
  virtual const ClassShardedHead* class_part() const { return nullptr; }

  /// The weight for an optimizer, a checkpoint, clipping, with its placement.
  virtual parallel::Parameter parameter(std::string name = "head.weight") const = 0;
};

}  // namespace tandem::classifier
