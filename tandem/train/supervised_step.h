#pragma once
#include <memory>

#include "tandem/comm/process_group.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/detail/step_endings.h"
#include "tandem/train/detail/update.h"
#include "tandem/train/passes/passes.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::train {

class BlockTrace;

/// Makes the passes of a step. `trained`: what this rank trains, as it holds it. Everything outlives the result.
using MakePasses = std::function<std::unique_ptr<Passes>(Task& task, parallel::GradientSync& sync,
                                                         const std::vector<Parameter>& trained, parallel::Mesh& mesh)>;

struct SupervisedStepOptions {
  OptimizerOptions optimizer;
  double clip = 0;         // largest norm of the gradients; 0: no clipping
  double ema = 0;          // decay of an exponential moving average of the weights; 0: there is none
  int64_t accumulate = 1;  // micro-batches of a step
  int64_t shards = 0;      // the same bits for every number of ranks that divides it; 0: not
  int64_t num_classes = 0;
  std::optional<LossScaleOptions> loss_scale = {};  // nullopt: backward starts from the loss itself
  const parallel::Strategy* strategy = &parallel::strategies().front();
  parallel::StrategyOptions strategy_options;
  BlockTrace* trace = nullptr;  // is told of each step; null: nobody
  MakePasses passes = nullptr;  // null: one micro-batch after the other, with the whole chain on each rank
};

/// A step of supervised training, in three pieces: forward and backward of all micro-batches, with a GradientSync
/// (Passes); checks, clipping and the optimizer (detail/update.h); and, for a strategy with late ends, the thread on
/// which updates run (detail/step_endings.h).
///
/// With `accumulate` K, each rank cuts its part of the batch into K micro-batches (split_sizes), whose losses count by
/// their shares of the samples:
///
///   rank 0   | 0 0 0 | 1 1 1 | 2 2 |       8 samples, K = 3
///   rank 1   | 0 0 0 | 1 1 | 2 2 |         7                  loss = sum over k of (samples of k / all) * loss of k
///
/// In steps that the strategy's ranks take apart (GradientSync::is_synchronous()), each rank clips its replicated
/// parameters by their own norm, and all ranks together the others by theirs.
///
/// Loss and gradients are those of the whole batch, unless the model uses statistics of a micro-batch or of one rank,
/// or a target of -1 leaves samples out. The activations are those of one micro-batch. A rank with fewer samples than K
/// has empty micro-batches; micro-batches that are empty on all ranks are left out.
///
/// With `shards` V, the batch of all ranks is cut into V shards, each of which is computed alone, and all sums run over
/// the shards in their order: losses, gradients, buffers (detail/ordered_buffers.h), the norm of the gradients. The
/// numbers of a step then have the same bits for every number of ranks that divides V, if the ranks have as many
/// threads, the strategy sums in order (StrategyOptions::shards) and so does the task, whose loss must be [ranks] (see
/// classifier/ordered_softmax_loss.h). The loader must have the same shards.
///
/// The loss and the gradients of each step are checked, after backward, where the host waits for the device once; a
/// step that finds a fault in them changes no weight. See Step. With allow_skips() a copy of the buffers is kept during
/// each step.
///
/// With `loss_scale`, gradients are worked out for a multiple of the loss and divided by it before anything reads them.
/// If the scale is dynamic, a step whose gradients are not finite on some rank is left out on all, changes nothing but
/// the scale, and is no fault (Reading::is_left_out); a loss that is not finite remains one, whatever the scale. A copy
/// of the buffers is kept as with allow_skips().
///
/// With a strategy of staleness s (parallel::LateEnds), a step ends on another thread while up to s later ones begin:
/// sums of losses and gradients, checks, clipping and the optimizer. The loss of a rank is of its own samples
/// (Task::run_apart()), and its buffers are its own until unify().
///
/// With `ema`, the trained model is the exponential moving average of the weights (detail/weight_average.h), with the
/// buffers as they are: weights() are the averages, and tests are of them. A checkpoint holds the averages under the
/// names of the weights, and the weights beside the optimizer's state.
///
/// A parameter of the task that requires no gradient when the step is made is frozen: it has no gradient, no state of
/// the optimizer, and does not count in clipping; checkpoints hold it.
class SupervisedStep : public Step {
 public:
  /// `mesh`: of all ranks that train together, which skip steps together; arranged as the strategy's `mesh` has it.
  /// Task and mesh must outlive this object. Collective. Throws SettingsError: accumulation, clipping or
  /// a loss scale with a parameter that is updated by rows in backward, averages with rows that are updated late,
  /// options of the optimizer, of the averages or of the scale; staleness with a parameter that is updated by rows, a
  /// loss scale or steps that may be left out.
  SupervisedStep(Task& task, SupervisedStepOptions options, parallel::Mesh& mesh);

  void allow_skips(int64_t in_a_row) override;
  std::optional<Reading> run(const data::Batch& batch, int64_t step, double learning_rate) override;
  int64_t staleness() const override { return late_ != nullptr ? late_->staleness() : 0; }
  std::optional<Reading> end_next() override;
  memory::Composition rehearse(const data::Batch& batch, memory::Account held) override;
  Costs measure(const data::Batch& batch) override;
  std::vector<pipeline::Timed> timeline() const override { return passes_->timeline(); }
  std::vector<Blocks> rehearse_blocks(const data::Batch& batch, bool in_parts = false) override;
  void settle() override;
  void with_tested_weights(const std::function<void()>& body) override;
  void unify() override;
  std::vector<Parameter> weights() const override;
  std::vector<Parameter> state() const override;
  storage::Fields numbers() const override;
  void set_numbers(const storage::Fields& numbers) override;
  /// "loss_scale" and "left_out_steps" of a loss that is scaled, and "loss_scale_is_constant"; "hidden": the share of
  /// the gradients' travel that computation hides, of rank 0; "most_lag", "sum_of_lags", "steps_with_lag" of
  /// parallel::LateEnds::lag(), over all ranks.
  Facts facts() const override;
  Scores evaluate(data::Loader& loader, const Tick& tick, const Answered& answered) override;

 private:
  detail::UpdateOptions update_options() const;
  std::unique_ptr<Passes> plain_passes();
  std::vector<double> run_passes(const data::Batch& batch, int64_t step, detail::StepNumbers& numbers);
  void check_staleness() const;
  std::optional<Reading> begin_late(const data::Batch& batch, int64_t step, double learning_rate);
  void swap_weights();
  std::optional<double> hidden() const;

  Task& task_;
  SupervisedStepOptions options_;
  comm::ProcessGroup &data_, &world_;  // the ranks that share a batch; all
  std::unique_ptr<parallel::GradientSync> sync_;
  parallel::LateEnds* late_;           // of the strategy; null: each step ends before the next begins
  std::vector<Parameter> parameters_;  // as this rank holds them; those that are trained come first
  std::vector<Parameter> trained_;
  detail::Update update_;
  std::unique_ptr<Passes> passes_;
  std::optional<detail::StepEndings> endings_;  // of late ends; last member: destroyed first
};

}  // namespace tandem::train
