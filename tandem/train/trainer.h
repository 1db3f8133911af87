#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/detail/divergence.h"
#include "tandem/train/evaluate.h"
#include "tandem/train/lr_schedule.h"
#include "tandem/train/optimizer.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// What happens while training, for whoever draws or writes it. Called on every rank.
class Observer {
 public:
  virtual ~Observer() = default;
  /// `loss`: at the first step, every log_every steps, and at the last of an epoch and of the run.
  virtual void on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) {}
  virtual void on_scores(int64_t step, const Scores& scores) {}
  virtual void on_evaluation(int64_t done, int64_t total) {}
  virtual void on_checkpoint(int64_t step, const std::filesystem::path& path) {}
  virtual void on_skipped_step(int64_t step, const std::string& fault) {}  // on_step() follows, without a loss
};

struct TrainerOptions {
  int64_t steps = 0;  // of the whole run, those before a resume included
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  double clip = 0;                       // largest norm of the gradients; 0: none
  int64_t skip_nonfinite = 0;            // steps in a row that are left out when loss or gradients are not finite
  int64_t log_every = 20;                // steps between reads of the loss
  int64_t evaluate_every = 0;            // steps; 0: at the end only
  int64_t checkpoint_every = 0;          // steps; 0: none but the last
  storage::Identity identity;            // of the job; stands in the checkpoints
  storage::Identity shared_identity;     // the part of it that a checkpoint must share to be continued
  std::function<bool()> stop_requested;  // looked at after each step; one rank's yes stops all
};

struct Outcome {
  static constexpr size_t kFirstLosses = 20;

  int64_t steps = 0;                                // done in all
  int64_t skipped_steps = 0;                        // of them left out by this run
  bool stopped = false;                             // by request
  bool saved = true;                                // false: the last state could not be written
  double loss = 0;                                  // of the last step
  std::vector<std::optional<double>> first_losses;  // of this run's first steps; nothing: the step was left out
  int64_t scored_step = -1;                         // when the last evaluation was; -1: never
  Scores scores;                                    // of the last evaluation
  double seconds = 0;                               // of training steps alone
  double total_seconds = 0;                         // the same for all steps of the run, those before a resume included
  double step_seconds = 0;                          // of the median step
  int64_t images = 0;                               // in them
  std::filesystem::path checkpoint;                 // newest; empty when none was saved
};

/// The loop of one rank: batch, loss, backward with gradients summed over the ranks, step.
///
/// All ranks hold the same job; whatever they decide (stop, save, fail) they decide together. Continuing from a
/// checkpoint with the same number of ranks gives the same bits as not having stopped.
///
/// Nothing that is not finite is saved or tested. The loss and the gradients are looked at in each step; parameters,
/// buffers and the optimizer's state before each test, each save and at the end. The first infinity or NaN on any rank
/// ends the run on all ranks with NonFiniteError, which names the step and the tensor. When the step that fails is the
/// first after a save, that checkpoint leads to the fault again whatever the learning rate is, and is set aside.
/// With skip_nonfinite a step whose loss or gradients are not finite changes nothing but the step's number, and nothing
/// is saved before the next step that counts.
class Trainer {
 public:
  /// `checkpoints` null: nothing is saved. All references must outlive the trainer. Collective.
  Trainer(Task& task, data::Loader& training, data::Loader* evaluation, int64_t num_classes, TrainerOptions options,
          CheckpointStore* checkpoints, comm::ProcessGroup& group);

  /// Continues from the newest good checkpoint; false when there is none. Collective.
  bool resume(const CheckpointStore& from, std::optional<int64_t> newest);

  /// Tells `observer` what happens. Collective. Throws NonFiniteError, and whatever the task and the loader throw.
  Outcome run(Observer& observer);

  int64_t step() const { return step_; }
  const Optimizer& optimizer() const { return optimizer_; }

 private:
  struct StepResult {
    std::optional<double> loss;    // nothing: the step was left out
    std::optional<int64_t> fault;  // place of a parameter whose gradient is not finite on this rank
  };

  StepResult train_step(const data::Batch& batch, Observer& observer);
  StepResult skip_step(const NonFiniteError& fault, const std::vector<Tensor>& buffers_before, Observer& observer);
  void run_epoch(Outcome& outcome, Observer& observer);
  std::optional<NonFiniteError> state_fault() const;
  NonFiniteError gradient_fault(const detail::NonFinite& found, int64_t step) const;
  void check_state();
  [[noreturn]] void fail(const NonFiniteError& fault, bool after_update = false);
  std::string checkpoint_remedy(bool after_update) const;
  void evaluate_now(Outcome& outcome, Observer& observer);
  void save(Outcome& outcome, Observer& observer);
  TrainingState state() const;
  double total_seconds() const;

  Task& task_;
  data::Loader &training_, *evaluation_;
  int64_t num_classes_;
  TrainerOptions options_;
  CheckpointStore* checkpoints_;
  comm::ProcessGroup& group_;
  std::vector<Parameter> parameters_;
  Optimizer optimizer_;
  parallel::DistributedDataParallel replicas_;
  std::vector<double> step_seconds_;
  double seconds_before_ = 0;                // of the steps before a resume
  std::filesystem::path newest_checkpoint_;  // saved by this run or resumed from; empty: none
  int64_t step_ = 0, saved_step_ = -1, evaluated_step_ = -1, checked_step_ = -1;
  int64_t skipped_steps_ = 0, skipped_in_a_row_ = 0, updates_since_save_ = 0;
};

}  // namespace tandem::train
