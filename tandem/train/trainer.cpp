#include "tandem/train/trainer.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cmath>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/median.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/train/detail/row_hooks.h"

namespace tandem::train {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Tensor> replicated_tensors(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> tensors;
  for (const auto& parameter : parameters) {
    if (!parameter.rows) tensors.push_back(parameter.tensor);
  }
  return tensors;
}

std::vector<std::string> replicated_names(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) {
    if (!parameter.rows) names.push_back(parameter.name);
  }
  return names;
}

std::vector<Tensor> tensors_of(const std::vector<Buffer>& buffers) {
  std::vector<Tensor> tensors;
  for (const auto& buffer : buffers) tensors.push_back(buffer.tensor);
  return tensors;
}

std::vector<Tensor> copies_of(const std::vector<Buffer>& buffers) {
  const CategoryScope scope(Category::buffers);
  std::vector<Tensor> copies;
  for (const auto& buffer : buffers) copies.push_back(buffer.tensor.clone());
  return copies;
}

NonFiniteError loss_fault(const std::string& which, int64_t step, double loss) {
  const std::string number = std::isnan(loss) ? "not a number" : loss > 0 ? "infinite" : "minus infinite";
  return NonFiniteError(which + std::to_string(step) + " is " + number + ", wanted a finite number");
}

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

Trainer::Trainer(Task& task, data::Loader& training, data::Loader* evaluation, int64_t num_classes,
                 TrainerOptions options, CheckpointStore* checkpoints, comm::ProcessGroup& group)
    : task_(task),
      training_(training),
      evaluation_(evaluation),
      num_classes_(num_classes),
      options_(std::move(options)),
      checkpoints_(checkpoints),
      group_(group),
      parameters_(task.parameters()),
      optimizer_(parameters_, options_.optimizer),
      replicas_(replicated_tensors(parameters_), tensors_of(task.buffers()), replicated_names(parameters_), group),
      memory_(current_context().rank) {
  if (training_.batches_per_epoch() == 0) {
    throw SettingsError("batch is larger than the number of training images, wanted at most one epoch");
  }
  const auto rows = task_.row_parameter();
  if (rows && rows->moves_all_rows) optimizer_.move_all_rows(rows->place);
  if (rows && rows->steps_in_backward && options_.skip_nonfinite > 0) {
    throw SettingsError("skip_nonfinite is " + std::to_string(options_.skip_nonfinite) +
                            " with a parameter that is updated before all gradients are known",
                        "leave skip_nonfinite out, or update that parameter with the others");
  }
  if (rows && rows->steps_in_backward && options_.clip > 0) {
    throw SettingsError("clip is " + std::to_string(options_.clip) +
                            " with a parameter that is updated before the norm of all gradients is known",
                        "leave clip out, or update that parameter with the others");
  }
}

Outcome Trainer::run(Observer& observer) {
  Outcome outcome;
  task_.set_training(true);
  while (step_ < options_.steps && !outcome.stopped) run_epoch(outcome, observer);
  replicas_.sync_buffers();
  optimizer_.settle();
  check_state();
  if (!outcome.stopped && evaluated_step_ != step_) evaluate_now(outcome, observer);
  if (saved_step_ != step_) save(outcome, observer);
  outcome.steps = step_;
  outcome.skipped_steps = skipped_steps_;
  outcome.checkpoint = newest_checkpoint_;
  outcome.total_seconds = total_seconds();
  outcome.seconds = outcome.total_seconds - seconds_before_;
  outcome.step_seconds = median(step_seconds_);
  outcome.memory = memory_.account();
  return outcome;
}

/// Trains from step_ to the end of its epoch, to the end of the run, or until a stop.
void Trainer::run_epoch(Outcome& outcome, Observer& observer) {
  const int64_t per_epoch = training_.batches_per_epoch(), epoch = step_ / per_epoch;
  start_epoch(training_, epoch, step_ % per_epoch);
  data::Batch batch;
  while (step_ < options_.steps && !outcome.stopped) {
    const auto start = Clock::now();
    StepResult result;
    {
      const WatchedStep watched(memory_);
      if (!next_batch(training_, batch)) return;
      result = train_step(batch, observer);
    }
    ++step_;
    outcome.images += batch.global_size;
    const bool read =
        is_due(step_, options_.log_every) || is_due(step_, per_epoch) || step_ == options_.steps || step_ == 1;
    if (result.loss) outcome.loss = *result.loss;
    if (outcome.first_losses.size() < Outcome::kFirstLosses) outcome.first_losses.push_back(result.loss);
    observer.on_step(step_, epoch, learning_rate(options_.schedule, step_ - 1), read ? result.loss : std::nullopt);
    const auto vote = detail::agree(options_.stop_requested && options_.stop_requested(), result.fault, group_);
    if (vote.fault) fail(gradient_fault(*vote.fault, step_), /*after_update=*/true);
    outcome.stopped = vote.stop;
    step_seconds_.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    if (is_due(step_, options_.evaluate_every)) evaluate_now(outcome, observer);
    if (is_due(step_, options_.checkpoint_every) && skipped_in_a_row_ == 0) save(outcome, observer);
  }
}

Context Trainer::context_of(const data::Batch& batch) const {
  auto context = current_context();
  context.category = Category::activations;
  context.seed = options_.seed;
  context.step = step_;
  context.first_sample = batch.first_sample;
  return context;
}

Trainer::StepResult Trainer::train_step(const data::Batch& batch, Observer& observer) {
  const ContextScope scope(context_of(batch));
  const double rate = learning_rate(options_.schedule, step_);
  task_.begin_step(step_);
  const detail::RowHooks hooks(task_, optimizer_, rate);
  const auto buffers_before = options_.skip_nonfinite > 0 ? copies_of(task_.buffers()) : std::vector<Tensor>();
  const auto loss = task_.loss(batch, comm::split_sizes(batch.global_size, group_.size()));
  const double value = loss.item<double>();
  // The loss is equal on all ranks, so that all ranks continue or none does.
  if (!std::isfinite(value)) return skip_step(loss_fault("loss of step ", step_ + 1, value), buffers_before, observer);
  replicas_.before_backward(loss);
  {
    const PhaseScope phase(Phase::backward);
    loss.backward();
  }
  const PhaseScope phase(Phase::optimizer);
  auto fault = detail::first_nonfinite_gradient(parameters_);
  if (!fault) fault = hooks.nonfinite();
  if (options_.skip_nonfinite > 0) {
    if (const auto first = detail::agree(false, fault, group_).fault) {
      return skip_step(gradient_fault(*first, step_ + 1), buffers_before, observer);
    }
  }
  if (options_.clip > 0) clip_grad_norm(parameters_, options_.clip, group_);
  optimizer_.step(rate);
  optimizer_.zero_grad();
  ++updates_since_save_;
  skipped_in_a_row_ = 0;
  return {value, fault};
}

/// Skips the step, or fails if too many steps were skipped in a row. Must be called on every rank with the same fault.
Trainer::StepResult Trainer::skip_step(const NonFiniteError& fault, const std::vector<Tensor>& buffers_before,
                                       Observer& observer) {
  if (const auto deeper = state_fault()) fail(*deeper);
  if (skipped_in_a_row_ >= options_.skip_nonfinite) fail(fault);
  const auto buffers = task_.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].tensor.copy_(buffers_before[i]);
  optimizer_.zero_grad();
  optimizer_.drop_step();
  ++skipped_in_a_row_;
  ++skipped_steps_;
  observer.on_skipped_step(step_ + 1, message_of(fault));
  return {};
}

NonFiniteError Trainer::gradient_fault(const detail::NonFinite& found, int64_t step) const {
  const auto& parameter = parameters_[found.place];
  NonFiniteError error("gradient of '" + parameter.name + "' in step " + std::to_string(step) +
                       " is not finite, wanted finite numbers");
  if (parameter.rows) error.set_rank(found.rank, group_.size());
  return error;
}

/// What is not finite in the state after step_; the same on all ranks. Collective.
std::optional<NonFiniteError> Trainer::state_fault() const {
  const auto tensors = state().tensors;
  const auto found = detail::agree(false, detail::first_nonfinite(tensors), group_).fault;
  if (!found) return std::nullopt;
  NonFiniteError error("'" + tensors[found->place].name + "' is not finite after step " + std::to_string(step_) +
                       ", wanted finite numbers");
  if (tensors[found->place].rows) error.set_rank(found->rank, group_.size());
  return error;
}

void Trainer::check_state() {
  if (checked_step_ == step_) return;
  if (const auto fault = state_fault()) fail(*fault);
  checked_step_ = step_;
}

/// Ends the run on all ranks. `after_update`: the step at fault has already changed the state. Collective.
void Trainer::fail(const NonFiniteError& fault, bool after_update) {
  const auto remedy = comm::broadcast_text(group_.rank() == 0 ? checkpoint_remedy(after_update) : "", 0, group_);
  auto error = fault;
  error.set_remedy(skips_before(skipped_in_a_row_) + "lower lr or set clip" + remedy);
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
  optimizer_.settle();
  replicas_.sync_buffers();
  check_state();
  outcome.scores = evaluate(task_, *evaluation_, num_classes_, group_,
                            [&](int64_t done, int64_t total) { observer.on_evaluation(done, total); });
  if (!std::isfinite(outcome.scores.loss)) fail(loss_fault("test loss after step ", step_, outcome.scores.loss));
  evaluated_step_ = outcome.scored_step = step_;
  observer.on_scores(step_, outcome.scores);
}

double Trainer::total_seconds() const {
  return std::accumulate(step_seconds_.begin(), step_seconds_.end(), seconds_before_);
}

TrainingState Trainer::state() const {
  TrainingState state;
  state.tensors = task_.weights();
  for (const auto& tensor : optimizer_.state()) state.tensors.push_back(tensor);
  state.identity = options_.identity;
  state.trainer = {{"step", step_}, {"seconds", total_seconds()}};
  return state;
}

void Trainer::save(Outcome& outcome, Observer& observer) {
  optimizer_.settle();
  check_state();
  if (checkpoints_ == nullptr) return;
  outcome.saved = save_checkpoint(*checkpoints_, step_, state(), group_);
  if (!outcome.saved) return;
  saved_step_ = step_;
  updates_since_save_ = 0;
  newest_checkpoint_ = checkpoints_->path(step_);
  observer.on_checkpoint(step_, newest_checkpoint_);
}

bool Trainer::resume(const CheckpointStore& from, std::optional<int64_t> newest) {
  auto wanted = state();
  wanted.identity = options_.shared_identity;
  const auto restored = load_checkpoint(from, wanted, newest, group_);
  if (!restored) return false;
  // Checkpoints of earlier versions have no "seconds".
  seconds_before_ =
      storage::find_value(restored->trainer, "seconds") ? storage::number(restored->trainer, "seconds") : 0;
  step_ = restored->step;
  saved_step_ = step_;
  updates_since_save_ = 0;
  newest_checkpoint_ = from.path(step_);
  return true;
}

}  // namespace tandem::train
