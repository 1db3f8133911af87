#pragma once
#include <memory>

#include "tandem/comm/process_group.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/optimizer.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::train {

namespace detail {
struct BatchPart;
}

struct SupervisedStepOptions {
  OptimizerOptions optimizer;
  double clip = 0;         // largest norm of the gradients; 0: no clipping
  int64_t accumulate = 1;  // micro-batches of a step
  int64_t num_classes = 0;
  const parallel::Strategy* strategy = &parallel::strategies().front();
  parallel::StrategyOptions strategy_options;
};

/// A step of supervised training: loss, backward with a GradientSync, clipping, optimizer.
///
/// With `accumulate` K, each rank cuts its part of the batch into K micro-batches (split_sizes), whose losses count by
/// their shares of the samples:
///
///   rank 0   | 0 0 0 | 1 1 1 | 2 2 |       8 samples, K = 3
///   rank 1   | 0 0 0 | 1 1 | 2 2 |         7                  loss = sum over k of (samples of k / all) * loss of k
///
/// Loss and gradients are those of the whole batch, unless the model uses statistics of a micro-batch or of one rank,
/// or a target of -1 leaves samples out. The activations are those of one micro-batch. A rank with fewer samples than K
/// has empty micro-batches; micro-batches that are empty on all ranks are left out.
///
/// The loss and the gradients of each step are checked; see Step. With allow_skips() a copy of the buffers is kept
/// during each step.
class SupervisedStep : public Step {
 public:
  /// `data`: the ranks that share a batch; `world`: all ranks that train together, which skip steps together. Task and
  /// groups must outlive this object. Collective. Throws SettingsError: accumulation or clipping with a parameter that
  /// is updated by rows in backward, options of the optimizer.
  SupervisedStep(Task& task, SupervisedStepOptions options, comm::ProcessGroup& data, comm::ProcessGroup& world);

  void allow_skips(int64_t in_a_row) override;
  Reading run(const data::Batch& batch, int64_t step, double learning_rate) override;
  memory::Composition rehearse(const data::Batch& batch, memory::Account held) override;
  Blocks rehearse_blocks(const data::Batch& batch, bool in_parts = false) override;
  void settle() override { optimizer_.settle(); }
  void unify() override;
  std::vector<Parameter> state() const override;
  Scores evaluate(data::Loader& loader, const Tick& tick) override;

  const Optimizer& optimizer() const { return optimizer_; }

 private:
  std::optional<NonFiniteError> add_gradients(const data::Batch& batch, int64_t step, double& loss);
  memory::Composition rehearse_part(const detail::BatchPart& part, memory::Account held, bool adds);
  Blocks blocks_of(const detail::BatchPart& part, bool adds, bool in_parts);
  Reading skip(const NonFiniteError& fault, const std::vector<Tensor>& buffers_before);

  Task& task_;
  SupervisedStepOptions options_;
  comm::ProcessGroup &data_, &world_;
  std::vector<Parameter> parameters_;
  Optimizer optimizer_;
  std::unique_ptr<parallel::GradientSync> sync_;
  bool may_skip_ = false;
};

}  // namespace tandem::train
