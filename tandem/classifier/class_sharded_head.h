#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/classifier/softmax_loss.h"
#include "tandem/parallel/parameter.h"

namespace tandem::classifier {

struct HeadOptions {
  int64_t classes = 0;
  int64_t dim = 0;
  Scoring scoring = normalised_softmax(1.0);
  bool naive = false;  // all scores on rank 0, the baseline
  BlockOptions blocks = {};
  std::vector<int64_t> counts = {};       // classes of each rank, in rank order; empty: split_sizes(classes, ranks)
  std::optional<Sampling> sampling = {};  // while training; nothing: all classes are scored
  uint64_t seed = 1;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::DeviceType::CPU;  // of the weight; features and targets must be there
};

/// A classifier whose classes are split over the ranks: rank r holds counts[r] rows of the weight.
///
/// Each rank brings the features of its own part of the batch; they are gathered, scored against the rank's classes,
/// and the gradient of a rank's features comes back to it by reduce_scatter. Memory a rank: C_local * D elements of
/// weight, the same of gradient, and what sharded_softmax_loss() needs.
class ClassShardedHead {
 public:
  /// Draws this rank's rows from normal(0, 0.01) by (seed, row): the same matrix for any number of ranks and on any
  /// device.
  /// Throws c10::ValueError when classes or dim is not positive, or counts do not add up to classes.
  ClassShardedHead(const HeadOptions& options, comm::ProcessGroup& group);

  /// Mean cross entropy over the global batch, equal on all ranks; see sharded_softmax_loss(). Collective.
  ///   features  [n_r, D]  this rank's rows         targets  [n_r]  int64, -1 leaves a row out
  ///   sizes     n_r of every rank
  Tensor loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes);

  /// Ids of the k best classes of each of this rank's rows, best first, [n_r, k] (k at most `classes`); of equal ones
  /// any. Memory: the scores of a block of classes. Collective.
  Tensor top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes);

  /// The margin's softening from now on; see Margin.
  void set_softening(double softening) { options_.scoring.margin.softening = softening; }

  /// What the next loss samples its classes by; while not training all are scored.
  void set_step(int64_t step) { step_ = step; }
  void set_training(bool training) { is_training_ = training; }

  /// From now on backward gives the weight's gradient to `update`, rows counted from this rank's first, and none is
  /// kept: 4 bytes a weight less. Empty: back to a gradient. Not for the naive form.
  void set_row_update(RowUpdate update) { update_ = std::move(update); }

  /// From now on `read` is told of sampled rows before they are.
  void set_rows_read(RowsRead read) { read_ = std::move(read); }

  /// The weight for an optimizer, a checkpoint, clipping: this rank's rows, and which of all classes they are.
  parallel::Parameter parameter(std::string name = "head.weight") const {
    return parallel::Parameter::split(std::move(name), weight_,
                                      {.dim = 0, .first = first_, .count = weight_.size(0), .total = options_.classes});
  }
  const HeadOptions& options() const { return options_; }

 private:
  Tensor gather(const Tensor& rows, std::span<const int64_t> sizes);
  std::pair<Tensor, Tensor> best_of_own(const Tensor& rows, int64_t k) const;
  std::optional<ClassSample> sample(const Tensor& targets) const;

  HeadOptions options_;
  comm::ProcessGroup& group_;
  int64_t first_;
  Tensor weight_;
  RowUpdate update_;
  RowsRead read_;
  int64_t step_ = 0;
  bool is_training_ = true;
};

}  // namespace tandem::classifier
