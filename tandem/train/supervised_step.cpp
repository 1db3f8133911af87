#include "tandem/train/supervised_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/base/context.h"
#include "tandem/comm/agree.h"
#include "tandem/train/detail/divergence.h"
#include "tandem/train/detail/row_hooks.h"
#include "tandem/train/evaluate.h"
#include "tandem/train/passes/plain_passes.h"

namespace tandem::train {
namespace {

/// How many of the parameters as this rank holds them are trained. These come first: a strategy may hold its own parts,
/// so the task's tensors say which are.
size_t put_trained_first(std::vector<Parameter>& held, const std::vector<Parameter>& parameters) {
  std::set<std::string> frozen;
  for (const auto& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) frozen.insert(parameter.name);
  }
  const auto rest = std::ranges::stable_partition(held, [&](const auto& part) { return !frozen.contains(part.name); });
  return held.size() - rest.size();
}

/// A parameter that is updated by rows changes before the rest of the step is known.
void check_option(bool is_set, const std::string& option, const std::string& why) {
  if (!is_set) return;
  const auto name = option.substr(0, option.find(' '));
  throw SettingsError(option + " with a parameter that is updated before " + why,
                      "leave " + name + " out, or update that parameter with the others");
}

/// Beside a later step, of whose activations these numbers are none.
double sum_of_losses(double own, comm::ProcessGroup& group) {
  const CategoryScope scratch(Category::communication);
  return comm::reduce_number(own, comm::Reduce::sum, group);
}

}  // namespace

SupervisedStep::SupervisedStep(Task& task, SupervisedStepOptions options, parallel::Mesh& mesh)
    : task_(task),
      options_(std::move(options)),
      data_(mesh.batch()),
      model_(mesh.group(parallel::Axes::all() - parallel::kBatchAxes)),
      world_(mesh.world()),
      sync_(options_.strategy->make({task.parameters(), tensors_of(task.buffers()), task.replicated_chain()}, mesh,
                                    options_.strategy_options)),
      parameters_(sync_->held(task.parameters())),
      trained_(parameters_.begin(), parameters_.begin() + put_trained_first(parameters_, task.parameters())),
      optimizer_(trained_, options_.optimizer) {
  const auto rows = task_.row_parameter();
  if (rows && rows->moves_all_rows) optimizer_.move_all_rows(optimizer_.place_of(rows->name));
  if (rows && rows->steps_in_backward) {
    check_option(options_.clip > 0, "clip is " + std::to_string(options_.clip), "the norm of all gradients is known");
  }
  if (options_.loss_scale) {
    scale_.emplace(*options_.loss_scale);
    check_option(rows && rows->steps_in_backward, "loss_scale is " + std::to_string(scale_->scale()),
                 "all gradients are known");
    may_skip_ = scale_->is_dynamic();
  }
  check_option(rows && options_.accumulate > 1, "accumulate is " + std::to_string(options_.accumulate),
               "all micro-batches are known");
  if (sync_->staleness() > 0) {
    check_staleness();
    task_.run_apart();
    endings_.emplace(world_.beside());
  }
  passes_ = options_.passes ? options_.passes(task_, *sync_, trained_, mesh) : plain_passes();
  task_.set_training(true);
}

std::unique_ptr<Passes> SupervisedStep::plain_passes() {
  const PlainPassesOptions options = {.accumulate = options_.accumulate,
                                      .shards = options_.shards,
                                      .shares = options_.strategy->shares(data_.size(), options_.strategy_options),
                                      .runs_apart = endings_.has_value()};
  return std::make_unique<PlainPasses>(task_, *sync_, trained_, data_, options);
}

/// What a step changes before its end cannot wait for it.
void SupervisedStep::check_staleness() const {
  const auto option = "staleness is " + std::to_string(sync_->staleness());
  check_option(task_.row_parameter().has_value(), option, "the end of the step");
  const auto refuse = [&](bool is_set, const std::string& what, const std::string& name) {
    if (is_set) throw SettingsError(option + " with " + what, "leave " + name + " or staleness out");
  };
  refuse(options_.loss_scale.has_value(), "a loss scale, which the next step needs", "the loss scale");
  refuse(may_skip_, "steps that may be left out, of which later ones have begun", "skip_nonfinite");
}

void SupervisedStep::allow_skips(int64_t in_a_row) {
  const auto rows = task_.row_parameter();
  check_option(rows && rows->steps_in_backward, "skip_nonfinite is " + std::to_string(in_a_row),
               "all gradients are known");
  may_skip_ = true;
  if (endings_) check_staleness();
}

std::optional<Reading> SupervisedStep::run(const data::Batch& batch, int64_t step, double learning_rate) {
  task_.begin_step(step);
  if (endings_) return begin(batch, step, learning_rate);
  const detail::RowHooks hooks(task_, optimizer_, learning_rate);
  const auto buffers_before = may_skip_ ? copies_of(task_.buffers()) : std::vector<Tensor>();
  const double loss = passes_->run(batch, scale_ ? scale_->scale() : 1);
  if (!std::isfinite(loss)) return skip(detail::loss_fault("loss of step ", step + 1, loss), buffers_before);
  const PhaseScope phase(Phase::optimizer);
  if (scale_) scale_->unscale(trained_);
  auto fault = detail::first_nonfinite_gradient(trained_);
  if (!fault) fault = hooks.nonfinite();
  if (may_skip_) {
    if (const auto first = detail::agree(false, fault, world_).fault) {
      if (scale_ && scale_->leave_out()) {
        undo(buffers_before);
        return Reading{.loss = loss, .is_left_out = true};
      }
      return skip(detail::gradient_fault(trained_, *first, step + 1, world_), buffers_before);
    }
    if (scale_) scale_->count_good_step();
  }
  update(learning_rate, world_);
  return Reading{.loss = loss, .fault = fault};
}

/// Clips, and takes the optimizer's step.
void SupervisedStep::update(double learning_rate, comm::ProcessGroup& group) {
  if (options_.clip > 0) clip(group);
  optimizer_.step(learning_rate);
  optimizer_.zero_grad();
  sync_->after_step();
}

/// A step that ends on another thread.
std::optional<Reading> SupervisedStep::begin(const data::Batch& batch, int64_t step, double learning_rate) {
  const double own_loss = passes_->run(batch, scale_ ? scale_->scale() : 1);
  endings_->start([=, this] { return end(own_loss, step, learning_rate); });
  if (endings_->under_way() <= sync_->staleness()) return std::nullopt;
  return endings_->wait_first();
}

std::optional<Reading> SupervisedStep::end_next() {
  if (!endings_ || endings_->under_way() == 0) return std::nullopt;
  return endings_->wait_first();
}

/// `own_loss`: this rank's term of the step's.
Reading SupervisedStep::end(double own_loss, int64_t step, double learning_rate) {
  auto& group = endings_->group();
  sync_->complete();
  const PhaseScope phase(Phase::optimizer);
  const double loss = sum_of_losses(own_loss, group);
  const auto fault = detail::first_nonfinite_gradient(trained_);
  if (std::isfinite(loss)) {
    update(learning_rate, group);
    return {.loss = loss, .fault = fault};
  }
  optimizer_.zero_grad();
  sync_->after_step();
  return {.skipped = detail::loss_fault("loss of step ", step + 1, loss)};
}

memory::Composition SupervisedStep::rehearse(const data::Batch& batch, memory::Account held) {
  if (may_skip_) {
    for (const auto& buffer : task_.buffers()) {
      held.add(Category::buffers, static_cast<int64_t>(buffer.tensor.nbytes()));
    }
  }
  const detail::RowHooks hooks(task_, optimizer_, /*learning_rate=*/0.0);
  const auto step = passes_->rehearse(batch, held, [this](const auto& rows) { return update_bytes(rows); });
  const memory::Change meeting{sync_->after_step_bytes(), Category::communication, 0};
  return highest_of(step, memory::compose({}, held, {&meeting, 1}));
}

/// What clipping and the optimizer allocate for a moment.
std::vector<memory::Change> SupervisedStep::update_bytes(const std::vector<int64_t>& rows) const {
  std::vector<memory::Change> changes;
  if (options_.clip > 0) changes.push_back({clip_memory(trained_, norm_sum()), Category::activations, 0});
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0) changes.push_back({optimizer_.row_bytes(i, rows[i]), Category::optimizer, 0});
  }
  return changes;
}

Step::Blocks SupervisedStep::rehearse_blocks(const data::Batch& batch, bool in_parts) {
  const detail::RowHooks hooks(task_, optimizer_, /*learning_rate=*/0.0);
  return passes_->rehearse_blocks(batch, in_parts);
}

void SupervisedStep::undo(const std::vector<Tensor>& buffers_before) {
  const auto buffers = task_.buffers();
  for (size_t i = 0; i < buffers_before.size(); ++i) buffers[i].tensor.copy_(buffers_before[i]);
  optimizer_.zero_grad();
  optimizer_.drop_step();
}

Reading SupervisedStep::skip(const NonFiniteError& fault, const std::vector<Tensor>& buffers_before) {
  undo(buffers_before);
  return {.skipped = fault};
}

/// In the order of shards, no bit of a step depends on the ranks.
NormSum SupervisedStep::norm_sum() const { return options_.shards > 0 ? NormSum::exactly : NormSum::quickly; }

void SupervisedStep::clip(comm::ProcessGroup& group) {
  if (sync_->is_synchronous()) {
    clip_grad_norm(trained_, options_.clip, group, norm_sum());
    return;
  }
  std::vector<Parameter> own, shared;
  for (const auto& parameter : trained_) {
    (parameter.placement.is_replicated_along(parallel::kBatchAxes) ? own : shared).push_back(parameter);
  }
  clip_grad_norm(own, options_.clip, model_, NormSum::quickly, parallel::Axes::all() - parallel::kBatchAxes);
  clip_grad_norm(shared, options_.clip, group);
}

void SupervisedStep::settle() {
  optimizer_.settle();
  sync_->settle();
}

void SupervisedStep::unify() {
  settle();
  sync_->unify_optimizer(optimizer_.state());
  sync_->unify();
}

std::vector<Parameter> SupervisedStep::weights() const {
  auto tensors = parameters_;
  for (auto& buffer : task_.buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

std::optional<parallel::GradientSync::Overlap> SupervisedStep::overlap() const {
  if (data_.size() == 1) return std::nullopt;
  auto overlap = sync_->overlap();
  if (overlap.travelled == 0) return std::nullopt;
  if (endings_) overlap.waited += endings_->waited();
  return overlap;
}

std::optional<parallel::GradientSync::Lag> SupervisedStep::lag() const {
  return endings_ ? std::optional(sync_->lag()) : std::nullopt;
}

storage::Fields SupervisedStep::numbers() const { return scale_ ? scale_->numbers() : storage::Fields(); }

void SupervisedStep::set_numbers(const storage::Fields& numbers) {
  sync_->loaded();
  if (scale_) scale_->set_numbers(numbers);
}

std::optional<Step::Scaling> SupervisedStep::scaling() const {
  if (!scale_) return std::nullopt;
  return Scaling{scale_->scale(), scale_->left_out(), !scale_->is_dynamic()};
}

std::vector<Parameter> SupervisedStep::state() const {
  auto tensors = weights();
  for (const auto& tensor : optimizer_.state()) tensors.push_back(tensor);
  for (const auto& tensor : sync_->state()) tensors.push_back(tensor);
  return tensors;
}

Scores SupervisedStep::evaluate(data::Loader& loader, const Tick& tick) {
  return train::evaluate(task_, loader, options_.num_classes, data_, tick);
}

}  // namespace tandem::train
