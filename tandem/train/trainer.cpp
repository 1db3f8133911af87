#include "tandem/train/trainer.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/median.h"
#include "tandem/base/seconds.h"
#include "tandem/comm/agree.h"
#include "tandem/train/batches.h"
#include "tandem/train/detail/divergence.h"

namespace tandem::train {
namespace {

using Clock = std::chrono::steady_clock;

std::string skips_before(int64_t skipped) {
  if (skipped == 0) return "";
  if (skipped == 1) return "the step before it was left out; ";
  return "the " + std::to_string(skipped) + " steps before it were left out; ";
}

/// One step, as the watch sees it.
class WatchedStep {
 public:
  explicit WatchedStep(memory::PeakWatch& watch) : watch_(watch) { watch_.begin(); }
  ~WatchedStep() { watch_.end(); }
  WatchedStep(const WatchedStep&) = delete;
  WatchedStep& operator=(const WatchedStep&) = delete;

 private:
  memory::PeakWatch& watch_;
};

bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

}  // namespace

Trainer::Trainer(Step& step, data::Loader& training, data::Loader* evaluation, TrainerOptions options,
                 CheckpointStore* checkpoints, comm::ProcessGroup& world)
    : step_(step),
      training_(training),
      evaluation_(evaluation),
      options_(std::move(options)),
      checkpoints_(checkpoints),
      world_(world),
      memory_(current_context().rank),
      votes_(world, step.staleness()),
      best_(options_.best) {
  if (training_.batches_per_epoch() == 0) {
    throw SettingsError("batch is larger than the number of training images, wanted at most one epoch");
  }
  if (options_.skip_nonfinite > 0) step_.allow_skips(options_.skip_nonfinite);
}

Outcome Trainer::run(Observer& observer) {
  Outcome outcome;
  while (steps_begun_ < options_.steps && !outcome.stopped) run_epoch(outcome, observer);
  step_.unify();
  check_state();
  if (!outcome.stopped && evaluated_step_ != steps_done_) evaluate_now(outcome, observer);
  const bool is_saved = saved_step_ == steps_done_ && !is_saved_elsewhere_;
  if (!is_saved || best_.awaits_save(steps_done_)) save(outcome, observer);
  outcome.steps = steps_done_;
  outcome.skipped_steps = skipped_steps_;
  outcome.checkpoint = newest_checkpoint_;
  outcome.best = best_.test();
  outcome.total_seconds = total_seconds();
  outcome.seconds = outcome.total_seconds - seconds_before_;
  outcome.step_seconds = median(step_seconds_);
  outcome.memory = memory_.account();
  return outcome;
}

/// Trains from steps_begun_ to the end of its epoch, to the end of the run, or until a stop.
void Trainer::run_epoch(Outcome& outcome, Observer& observer) {
  const int64_t per_epoch = training_.batches_per_epoch();
  start_epoch(training_, steps_begun_ / per_epoch, steps_begun_ % per_epoch);
  data::Batch batch;
  while (steps_begun_ < options_.steps && !outcome.stopped) {
    const auto start = Clock::now();
    std::optional<Reading> reading;
    {
      const WatchedStep watched(memory_);
      if (!next_batch(training_, batch)) return;
      reading = begin_step(batch);
    }
    outcome.images += batch.global_size;
    if (reading) end_step(*reading, outcome, observer);
    const bool evaluates = is_due(steps_begun_, options_.evaluate_every),
               saves = is_due(steps_begun_, options_.checkpoint_every);
    if (evaluates || saves || steps_begun_ == options_.steps || outcome.stopped) end_steps(outcome, observer);
    step_seconds_.push_back(seconds_since(start));
    if (evaluates) evaluate_now(outcome, observer);
    if ((saves || best_.awaits_save(steps_done_)) && skipped_in_a_row_ == 0) save(outcome, observer);
  }
}

Context Trainer::context_of(const data::Batch& batch) const {
  auto context = current_context();
  context.category = Category::activations;
  context.seed = options_.seed;
  context.step = steps_begun_;
  context.progress = static_cast<double>(steps_begun_) / std::max(1.0, static_cast<double>(options_.schedule.steps));
  context.first_sample = batch.first_sample;
  return context;
}

/// Returns what the step did, or the oldest that is under way if they are too many.
std::optional<Reading> Trainer::begin_step(const data::Batch& batch) {
  const ContextScope scope(context_of(batch));
  const int64_t step = steps_begun_++;
  return step_.run(batch, step, learning_rate(options_.schedule, step));
}

/// Tells of step steps_done_, which has ended.
void Trainer::end_step(const Reading& reading, Outcome& outcome, Observer& observer) {
  if (reading.skipped) drop_steps();  // on all ranks; one rank's fault must leave the order of calls
  if (reading.skipped) {
    count_skipped(*reading.skipped, observer);
  } else if (!reading.is_left_out) {
    ++updates_since_save_;
    skipped_in_a_row_ = 0;
  }
  const int64_t per_epoch = training_.batches_per_epoch(), epoch = steps_done_ / per_epoch;
  ++steps_done_;
  const bool read = is_due(steps_done_, options_.log_every) || is_due(steps_done_, per_epoch) ||
                    steps_done_ == options_.steps || steps_done_ == 1;
  if (reading.loss) outcome.loss = *reading.loss;
  if (outcome.first_losses.size() < Outcome::kFirstLosses) outcome.first_losses.push_back(reading.loss);
  observer.on_step(steps_done_, epoch, learning_rate(options_.schedule, steps_done_ - 1),
                   read ? reading.loss : std::nullopt);
  votes_.cast(options_.stop_requested && options_.stop_requested(), reading.fault);
  if (votes_.is_due()) heed(votes_.count(), outcome);
}

/// Ends all steps that are under way.
void Trainer::end_steps(Outcome& outcome, Observer& observer) {
  while (const auto reading = step_.end_next()) end_step(*reading, outcome, observer);
  while (!votes_.is_empty()) heed(votes_.count(), outcome);
}

/// Of the oldest step whose vote has not been heeded.
void Trainer::heed(const detail::StepVote& vote, Outcome& outcome) {
  ++steps_voted_;
  if (vote.fault) {
    drop_steps();
    fail(detail::gradient_fault(step_.state(), *vote.fault, steps_voted_, world_), /*after_update=*/true);
  }
  outcome.stopped = outcome.stopped || vote.stop;
}

/// Steps that are under way are not told of.
void Trainer::drop_steps() {
  while (step_.end_next()) {
  }
}

/// Fails if too many steps were skipped in a row. Must be called on every rank with the same fault.
void Trainer::count_skipped(const NonFiniteError& fault, Observer& observer) {
  if (const auto deeper = state_fault()) fail(*deeper);
  if (skipped_in_a_row_ >= options_.skip_nonfinite) fail(fault);
  ++skipped_in_a_row_;
  ++skipped_steps_;
  observer.on_skipped_step(steps_done_ + 1, message_of(fault));
}

/// What is not finite in the state after steps_done_; the same on all ranks. Collective.
std::optional<NonFiniteError> Trainer::state_fault() const {
  const auto tensors = step_.state();
  const auto found = detail::agree(false, detail::first_nonfinite(tensors), world_).fault;
  if (!found) return std::nullopt;
  return detail::state_fault(tensors, *found, steps_done_, world_);
}

void Trainer::check_state() {
  if (checked_step_ == steps_done_) return;
  if (const auto fault = state_fault()) fail(*fault);
  checked_step_ = steps_done_;
}

/// Ends the run on all ranks. `after_update`: the step at fault has already changed the state. Collective.
void Trainer::fail(const NonFiniteError& fault, bool after_update) {
  const auto remedy = comm::broadcast_text(world_.rank() == 0 ? checkpoint_remedy(after_update) : "", 0, world_);
  auto error = fault;
  const bool may_be_scale = after_update && value_of(step_.facts(), "loss_scale_is_constant");
  const std::string scale = may_be_scale ? "lower loss_scale, " : "";
  error.set_remedy(skips_before(skipped_in_a_row_) + scale + "lower lr or set clip" + remedy);
  throw error;
}

/// What the error text says about checkpoints. Sets aside a checkpoint that leads to the fault again. Runs on one rank.
std::string Trainer::checkpoint_remedy(bool after_update) const {
  if (saved_step_ < 0) return "";
  const auto name = "the checkpoint of step " + std::to_string(saved_step_);
  const bool is_own = checkpoints_ != nullptr && newest_checkpoint_ == checkpoints_->path(saved_step_);
  if (updates_since_save_ != (after_update ? 1 : 0) || !is_own) return "; " + name + " is from before";
  try {
    return "; " + name + " leads to this again and is set aside as " + checkpoints_->set_aside(saved_step_);
  } catch (const Error& error) {
    return "; " + name + " leads to this again: " + message_of(error);
  }
}

void Trainer::evaluate_now(Outcome& outcome, Observer& observer) {
  if (evaluation_ == nullptr) return;
  step_.unify();
  check_state();
  outcome.scores = step_.evaluate(
      *evaluation_, [&](int64_t done, int64_t total) { observer.on_evaluation(done, total); },
      steps_done_ == options_.steps ? options_.answered : Answered());
  for (const auto& score : outcome.scores.list) {
    if (!std::isfinite(score.value)) {
      fail(detail::loss_fault("test " + score.label + " after step ", steps_done_, score.value));
    }
  }
  evaluated_step_ = outcome.scored_step = steps_done_;
  best_.judge(steps_done_, outcome.scores);
  observer.on_scores(steps_done_, outcome.scores);
}

double Trainer::total_seconds() const {
  return std::accumulate(step_seconds_.begin(), step_seconds_.end(), seconds_before_);
}

TrainingState Trainer::state() const {
  TrainingState state;
  state.tensors = step_.state();
  state.identity = options_.identity;
  state.trainer = {{"step", steps_done_}, {"seconds", total_seconds()}};
  if (steps_done_ > 0) state.trainer.emplace_back("lr", learning_rate(options_.schedule, steps_done_ - 1));
  for (const auto& number : best_.numbers(steps_done_)) state.trainer.push_back(number);
  for (const auto& number : step_.numbers()) state.trainer.push_back(number);
  return state;
}

void Trainer::save(Outcome& outcome, Observer& observer) {
  step_.unify();
  check_state();
  if (checkpoints_ == nullptr) return;
  auto saved = state();
  if (options_.card && world_.rank() == 0) saved.card = options_.card(steps_done_, outcome);
  outcome.saved = save_checkpoint(*checkpoints_, steps_done_, saved, world_);
  if (!outcome.saved) return;
  saved_step_ = steps_done_;
  is_saved_elsewhere_ = false;
  updates_since_save_ = 0;
  newest_checkpoint_ = checkpoints_->path(steps_done_);
  observer.on_checkpoint(steps_done_, newest_checkpoint_);
  if (best_.saved(steps_done_)) observer.on_best(*best_.test(), newest_checkpoint_);
}

bool Trainer::resume(const CheckpointStore& from, std::optional<int64_t> newest) {
  step_.settle();
  auto wanted = state();
  wanted.identity = options_.shared_identity;
  const auto restored = load_checkpoint(from, wanted, newest, world_);
  if (!restored) return false;
  // Checkpoints of earlier versions have no "seconds" and no "lr".
  const auto saved = [&](const char* name) {
    const auto& fields = restored->trainer;
    return storage::find_value(fields, name) ? std::optional(storage::number(fields, name)) : std::nullopt;
  };
  seconds_before_ = saved("seconds").value_or(0);
  rate_before_ = saved("lr");
  best_.resume(restored->trainer);
  step_.set_numbers(restored->trainer);
  steps_begun_ = steps_done_ = steps_voted_ = restored->step;
  saved_step_ = steps_done_;
  updates_since_save_ = 0;
  newest_checkpoint_ = from.path(steps_done_);
  const bool is_own = checkpoints_ != nullptr && newest_checkpoint_ == checkpoints_->path(steps_done_);
  is_saved_elsewhere_ = comm::broadcast_number(is_own ? 0 : 1, 0, world_) == 1;
  return true;
}

}  // namespace tandem::train
