#pragma once
#include <memory>
#include <utility>

#include "tandem/classifier/detail/targets.h"

namespace tandem::classifier::detail {

class Lane;

/// One loss of one rank's classes: forward() once, then backward() as often as asked.
class OwnSoftmax {
 public:
  OwnSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first, const Scoring& scoring,
             const BlockOptions& options, const ClassSample* sample = nullptr);
  virtual ~OwnSoftmax() = default;
  OwnSoftmax(const OwnSoftmax&) = delete;
  OwnSoftmax& operator=(const OwnSoftmax&) = delete;

  /// This rank's numbers of each row of `features`: the sum over its classes is exp(maximum) * sum.
  struct OwnNumbers {
    Tensor maximum, sum, total;  // [N]; total only for smoothing
  };
  virtual OwnNumbers forward(const Tensor& features, const Tensor& weight) = 0;

  /// Gradients of this rank's features (its share) and weight. `log_sum` [N] over all ranks; `share` [N]: the loss's
  /// derivative by a row's loss; `classes`: of all ranks. With `update` the weight's gradient is not defined; without
  /// `of_features` that of the features.
  virtual std::pair<Tensor, Tensor> backward(const Tensor& features, const Tensor& weight, const Tensor& log_sum,
                                             const Tensor& share, int64_t classes, const RowUpdate& update = {},
                                             bool of_features = true) = 0;

  const ClassBlocks& blocks() const { return blocks_; }
  const LocalTargets& targets() const { return targets_; }

 protected:
  OwnNumbers numbers_of(const Running& merged) const;

  /// Makes room for what stays of the first classes, from forward to the first backward.
  void begin_to_keep(const Tensor& features);
  bool is_kept(ClassRange classes) const { return kept_.defined() && classes.end <= kept_.size(0); }
  /// Where the products of a block are, or are put: kept, or the lane's.
  Tensor products_of(const Lane& lane, ClassRange classes) const;
  bool needs_lanes_products() const { return !kept_.defined() || kept_.size(0) < blocks_.num_classes(); }

  ClassBlocks blocks_;
  LocalTargets targets_;
  Tensor kept_;  // [classes, columns]
};

/// Adds sampled classes, whose exponentials count exp(log_weight) times.
void add_others(Running& rows, const Running& others, double log_weight);

/// What suits the scoring and the features' device: ExponentialSoftmax, or else BlockSoftmax.
std::unique_ptr<OwnSoftmax> make_own_softmax(const Tensor& features, const Tensor& weight, const Tensor& targets,
                                             int64_t first, const Scoring& scoring, const BlockOptions& options,
                                             const ClassSample* sample);

}  // namespace tandem::classifier::detail
