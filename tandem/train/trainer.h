#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/parallel/data_parallel.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/evaluate.h"
#include "tandem/train/lr_schedule.h"
#include "tandem/train/optimizer.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// What happens while training, for whoever draws or writes it. Called on every rank.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) {}  // loss: every log_every
  virtual void on_scores(int64_t step, const Scores& scores) {}
  virtual void on_evaluation(int64_t done, int64_t total) {}
  virtual void on_checkpoint(int64_t step, const std::filesystem::path& path) {}
};

struct TrainerOptions {
  int64_t steps = 0;  // of the whole run, those before a resume included
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  double clip = 0;                       // largest norm of the gradients; 0: none
  int64_t log_every = 20;                // steps between reads of the loss
  int64_t evaluate_every = 0;            // steps; 0: at the end only
  int64_t checkpoint_every = 0;          // steps; 0: none but the last
  Job job;                               // settings that a checkpoint must share
  std::function<bool()> stop_requested;  // looked at after each step; one rank's yes stops all
};

struct Outcome {
  int64_t steps = 0;                 // done in all
  bool stopped = false;              // by request
  bool saved = true;                 // false: the last state could not be written
  double loss = 0;                   // the last training loss that was read
  int64_t scored_step = -1;          // when the last evaluation was; -1: never
  Scores scores;                     // of the last evaluation
  double seconds = 0;                // of training steps alone
  double step_seconds = 0;           // of the median step
  int64_t images = 0;                // in them
  std::filesystem::path checkpoint;  // newest; empty when none was saved
};

/// The loop of one rank: batch, loss, backward with gradients summed over the ranks, step.
///
/// All ranks hold the same job; whatever they decide (stop, save, fail on a loss that is not finite) they decide
/// together. Continuing from a checkpoint with the same number of ranks gives the same bits as not having stopped.
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
  double train_step(const data::Batch& batch);
  void run_epoch(Outcome& outcome, Observer& observer);
  bool all_agree_to_stop();
  void check_finite(double loss) const;
  void evaluate_now(Outcome& outcome, Observer& observer);
  void save(Outcome& outcome, Observer& observer);
  TrainingState state() const;

  Task& task_;
  data::Loader &training_, *evaluation_;
  int64_t num_classes_;
  TrainerOptions options_;
  CheckpointStore* checkpoints_;
  comm::ProcessGroup& group_;
  std::vector<Parameter> parameters_;
  Optimizer optimizer_;
  parallel::DataParallel replicas_;
  std::vector<double> step_seconds_;
  int64_t step_ = 0, saved_step_ = -1, evaluated_step_ = -1;
};

}  // namespace tandem::train
