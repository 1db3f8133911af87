#include "tandem/train/trainer.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cmath>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/base/median.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/memory/meter.h"
#include "tandem/train/row_hooks.h"

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
      replicas_(replicated_tensors(parameters_), tensors_of(task.buffers()), replicated_names(parameters_), group) {
  if (training_.batches_per_epoch() == 0) {
    throw SettingsError("train.batch is larger than the number of training images, wanted at most one epoch");
  }
  const auto rows = task_.row_parameter();
  if (rows && rows->moves_all_rows) optimizer_.move_all_rows(rows->place);
  if (rows && rows->steps_in_backward && options_.clip > 0) {
    throw SettingsError("train.clip is " + std::to_string(options_.clip) +
                            " with a parameter that is updated before the norm of all gradients is known",
                        "leave train.clip or head.fused_update out");
  }
}

Outcome Trainer::run(Observer& observer) {
  Outcome outcome;
  task_.set_training(true);
  while (step_ < options_.steps && !outcome.stopped) run_epoch(outcome, observer);
  replicas_.sync_buffers();
  if (!outcome.stopped && evaluated_step_ != step_) evaluate_now(outcome, observer);
  if (saved_step_ != step_) save(outcome, observer);
  outcome.steps = step_;
  outcome.seconds = std::accumulate(step_seconds_.begin(), step_seconds_.end(), 0.0);
  outcome.step_seconds = median(step_seconds_);
  return outcome;
}

/// From where step_ stands in its epoch to the epoch's end, the run's, or a stop.
void Trainer::run_epoch(Outcome& outcome, Observer& observer) {
  const int64_t per_epoch = training_.batches_per_epoch(), epoch = step_ / per_epoch;
  start_epoch(training_, epoch, step_ % per_epoch);
  data::Batch batch;
  while (step_ < options_.steps && !outcome.stopped) {
    const auto start = Clock::now();
    if (!next_batch(training_, batch)) return;
    const double loss = train_step(batch);
    ++step_;
    outcome.images += batch.global_size;
    const bool read = is_due(step_, options_.log_every) || step_ == options_.steps || step_ == 1;
    if (read) outcome.loss = loss;
    observer.on_step(step_, epoch, learning_rate(options_.schedule, step_ - 1),
                     read ? std::optional(loss) : std::nullopt);
    outcome.stopped = all_agree_to_stop();
    step_seconds_.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    if (is_due(step_, options_.evaluate_every)) evaluate_now(outcome, observer);
    if (is_due(step_, options_.checkpoint_every)) save(outcome, observer);
  }
}

double Trainer::train_step(const data::Batch& batch) {
  const memory::Scope scope(memory::Category::activations);
  const double rate = learning_rate(options_.schedule, step_);
  task_.begin_step(step_);
  const RowHooks hooks(task_, optimizer_, rate);
  const auto loss = task_.loss(batch, comm::split_sizes(batch.global_size, group_.size()));
  const double value = loss.item<double>();
  check_finite(value);
  replicas_.prepare_backward(loss);
  loss.backward();
  const comm::PhaseScope phase(comm::Phase::optimizer);
  if (options_.clip > 0) clip_grad_norm(parameters_, options_.clip, group_);
  optimizer_.step(rate);
  optimizer_.zero_grad();
  return value;
}

// The loss is equal on all ranks, so that all throw or none.
void Trainer::check_finite(double loss) const {
  if (std::isfinite(loss)) return;
  const std::string number = std::isnan(loss) ? "not a number" : loss > 0 ? "infinite" : "minus infinite";
  throw NonFiniteError(
      "loss of step " + std::to_string(step_ + 1) + " is " + number + ", wanted a finite number",
      std::string("lower train.lr or set train.clip") +
          (saved_step_ >= 0 ? "; the checkpoint of step " + std::to_string(saved_step_) + " is from before" : ""));
}

bool Trainer::all_agree_to_stop() {
  if (!options_.stop_requested) return false;
  auto flag = at::full({1}, options_.stop_requested() ? 1 : 0, at::kInt);
  comm::all_reduce_(flag, group_, comm::Reduce::max);
  return flag.item<int>() != 0;
}

void Trainer::evaluate_now(Outcome& outcome, Observer& observer) {
  if (evaluation_ == nullptr) return;
  optimizer_.settle();
  replicas_.sync_buffers();
  outcome.scores = evaluate(task_, *evaluation_, num_classes_, group_,
                            [&](int64_t done, int64_t total) { observer.on_evaluation(done, total); });
  evaluated_step_ = outcome.scored_step = step_;
  observer.on_scores(step_, outcome.scores);
}

TrainingState Trainer::state() const {
  TrainingState state;
  state.tensors = parameters_;
  for (const auto& buffer : task_.buffers()) state.tensors.push_back(Parameter::replicated(buffer.name, buffer.tensor));
  for (const auto& tensor : optimizer_.state()) state.tensors.push_back(tensor);
  state.job = options_.job;
  state.trainer = {{"step", step_}};
  return state;
}

void Trainer::save(Outcome& outcome, Observer& observer) {
  optimizer_.settle();
  if (checkpoints_ == nullptr) return;
  saved_step_ = step_;
  outcome.saved = save_checkpoint(*checkpoints_, step_, state(), group_);
  if (!outcome.saved) return;
  outcome.checkpoint = checkpoints_->path(step_);
  observer.on_checkpoint(step_, outcome.checkpoint);
}

bool Trainer::resume(const CheckpointStore& from, std::optional<int64_t> newest) {
  const auto restored = load_checkpoint(from, state(), newest, group_);
  if (!restored) return false;
  step_ = restored->step;
  saved_step_ = step_;
  return true;
}

}  // namespace tandem::train
