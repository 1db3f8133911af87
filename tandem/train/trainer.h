#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/memory/meter.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/detail/best_so_far.h"
#include "tandem/train/detail/votes.h"
#include "tandem/train/lr_schedule.h"
#include "tandem/train/step.h"

namespace tandem::train {

/// Callbacks for what happens during training, to show or record it. Called on every rank.
class Observer {
 public:
  virtual ~Observer() = default;
  /// `loss`: given at the first step, every log_every steps, and at the last step of an epoch and of the run.
  virtual void on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) {}
  virtual void on_scores(int64_t step, const Scores& scores) {}
  virtual void on_evaluation(int64_t done, int64_t total) {}
  virtual void on_checkpoint(int64_t step, const std::filesystem::path& path) {}
  /// The test after this step is the best so far, and its checkpoint is saved.
  virtual void on_best(const BestTest& best, const std::filesystem::path& path) {}
  virtual void on_skipped_step(int64_t step, const std::string& fault) {}  // on_step() follows, without loss
};

struct Outcome;

struct TrainerOptions {
  int64_t steps = 0;             // of the whole run, including those before a resume
  ScheduleOptions schedule;      // Context::progress is the share of its steps
  uint64_t seed = 0;             // of the context in which steps run
  int64_t skip_nonfinite = 0;    // how many steps in a row may be skipped if not finite
  int64_t log_every = 20;        // steps between two reports of the loss
  int64_t evaluate_every = 0;    // steps; 0: at the end only
  int64_t checkpoint_every = 0;  // steps; 0: only at the end
  std::string best;            // name of a score: each test that is better by it than all before is saved; empty: none
  storage::Identity identity;  // of the job; stored in the checkpoints
  // Makes the card of a checkpoint after `step`; the outcome has the scores of this run's last evaluation. Called on
  // rank 0. Empty: the checkpoints have no card.
  std::function<ModelCard(int64_t step, const Outcome& so_far)> card;
  storage::Identity shared_identity;     // the part of it that a checkpoint must share to be resumed
  Answered answered;                     // called in the test after the last step; empty: nobody asks
  std::function<bool()> stop_requested;  // polled after each step; true on one rank stops all ranks
};

struct Outcome {
  static constexpr size_t kFirstLosses = 20;

  int64_t steps = 0;                                // done by the whole run
  int64_t skipped_steps = 0;                        // skipped by this run
  bool stopped = false;                             // because stop_requested() returned true
  bool saved = true;                                // false: the last state could not be written
  double loss = 0;                                  // of the last step
  std::vector<std::optional<double>> first_losses;  // of the first steps since the start or resume; nullopt: skipped
  int64_t scored_step = -1;                         // step of the last evaluation; -1: none
  Scores scores;                                    // of the last evaluation
  std::optional<BestTest> best;                     // of the whole run, by TrainerOptions::best; nullopt: none is saved
  double seconds = 0;                               // of training steps only
  double total_seconds = 0;                         // the same, including steps before a resume
  double step_seconds = 0;                          // of the median step
  int64_t images = 0;                               // in these steps
  memory::Account memory;                           // of this rank; at_peak: the highest moment of a training step
  std::filesystem::path checkpoint;                 // newest; empty when none was saved
};

/// The training loop of one rank: epochs, the schedule, stopping, saving, observing. What happens to a batch is the
/// step's.
///
/// All ranks must have the same job; they stop, save and fail together. Resuming from a checkpoint with the same number
/// of ranks gives the same bits as a run that was not stopped.
///
/// A state that is not finite is neither saved nor evaluated. The loss and the gradients are checked in each step;
/// parameters, buffers and the optimizer's state are checked before each evaluation, before each save and at the end.
/// The first infinity or NaN on any rank ends the run on all ranks with NonFiniteError, which names the step and the
/// tensor. If the step that fails is the first one after a save, the saved checkpoint leads to the same fault whatever
/// the learning rate is, and is set aside. With skip_nonfinite, a step whose loss or gradients are not finite changes
/// nothing but the step's number, and nothing is saved before the next step that is not skipped, except at the end of
/// the run.
///
/// With `best`, the state after each test whose score is better than those of all tests before, also before a resume,
/// is saved, and its checkpoint stays until a better one is saved (CheckpointStore). A test of a state that is not
/// saved, after a skipped step or on a full disk, does not count.
///
/// Where steps end late (Step::staleness() s), they are told of, in order, up to s steps later, and what the ranks
/// agree on after them, a stop or a fault, up to 2 s later. All end before a test and a save.
class Trainer {
 public:
  /// If `checkpoints` is null, nothing is saved; if `evaluation` is null, nothing is evaluated. `world`: all ranks that
  /// train together, which stop, save and fail together. All references must outlive the trainer.
  Trainer(Step& step, data::Loader& training, data::Loader* evaluation, TrainerOptions options,
          CheckpointStore* checkpoints, comm::ProcessGroup& world);

  /// Resumes from the newest good checkpoint, up to step `newest`; returns false if there is none. If `from` is another
  /// store than the trainer's own, run() also saves a state that it need not train. Collective.
  bool resume(const CheckpointStore& from, std::optional<int64_t> newest);

  /// The learning rate of the last step before a resume; nullopt: there was none, or an earlier version has saved it.
  std::optional<double> rate_before() const { return rate_before_; }

  /// Trains and reports to `observer`. Collective. Throws NonFiniteError, SettingsError if a test does not measure the
  /// score `best`, and whatever the step and the loader throw.
  Outcome run(Observer& observer);

  int64_t step() const { return steps_done_; }

 private:
  Context context_of(const data::Batch& batch) const;
  std::optional<Reading> begin_step(const data::Batch& batch);
  void end_step(const Reading& reading, Outcome& outcome, Observer& observer);
  void end_steps(Outcome& outcome, Observer& observer);
  void drop_steps();
  void heed(const detail::StepVote& vote, Outcome& outcome);
  void count_skipped(const NonFiniteError& fault, Observer& observer);
  void run_epoch(Outcome& outcome, Observer& observer);
  std::optional<NonFiniteError> state_fault() const;
  void check_state();
  [[noreturn]] void fail(const NonFiniteError& fault, bool after_update = false);
  std::string checkpoint_remedy(bool after_update) const;
  void evaluate_now(Outcome& outcome, Observer& observer);
  void save(Outcome& outcome, Observer& observer);
  TrainingState state() const;
  double total_seconds() const;

  Step& step_;
  data::Loader &training_, *evaluation_;
  TrainerOptions options_;
  CheckpointStore* checkpoints_;
  comm::ProcessGroup& world_;
  memory::PeakWatch memory_;  // of training steps
  std::vector<double> step_seconds_;
  double seconds_before_ = 0;                // of the steps before a resume
  std::optional<double> rate_before_;        // of the last of them
  std::filesystem::path newest_checkpoint_;  // saved by this run or resumed from; empty: none
  detail::Votes votes_;
  detail::BestSoFar best_;
  int64_t steps_begun_ = 0, steps_done_ = 0, steps_voted_ = 0, saved_step_ = -1, evaluated_step_ = -1,
          checked_step_ = -1;
  bool is_saved_elsewhere_ = false;  // and not in checkpoints_
  int64_t skipped_steps_ = 0, skipped_in_a_row_ = 0, updates_since_save_ = 0;
};

}  // namespace tandem::train
