#include "tandem/train/supervised_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/base/context.h"
#include "tandem/comm/agree.h"
#include "tandem/train/detail/divergence.h"
#include "tandem/train/detail/micro_batches.h"
#include "tandem/train/detail/row_hooks.h"
#include "tandem/train/evaluate.h"

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

std::vector<double> loss_numbers(const Tensor& loss) {
  const auto numbers = loss.detach().to(at::kCPU, at::kDouble).reshape({-1});
  return {numbers.const_data_ptr<double>(), numbers.const_data_ptr<double>() + numbers.numel()};
}

/// The derivative of the step's loss, times `scale`, by the numbers of a part's; undefined: 1.
Tensor start_of_backward(const Tensor& loss, std::vector<double> shares, double scale) {
  for (auto& share : shares) share *= scale;
  if (loss.dim() == 0 && shares[0] == 1) return {};
  return at::from_blob(shares.data(), loss.sizes(), at::kDouble)
      .to(loss.options().requires_grad(false), /*non_blocking=*/false, /*copy=*/true);
}

/// Beside a later step, of whose activations these numbers are none.
double sum_of_losses(double own, comm::ProcessGroup& group) {
  const CategoryScope scratch(Category::communication);
  return comm::reduce_number(own, comm::Reduce::sum, group);
}

Context context_of(const data::Batch& batch) {
  auto context = current_context();
  context.first_sample = batch.first_sample;
  return context;
}

}  // namespace

SupervisedStep::SupervisedStep(Task& task, SupervisedStepOptions options, parallel::Mesh& mesh)
    : task_(task),
      options_(std::move(options)),
      mesh_(mesh.sizes()),
      data_(mesh.batch()),
      world_(mesh.world()),
      sync_(options_.strategy->make({task.parameters(), tensors_of(task.buffers()), task.replicated_chain()}, mesh,
                                    options_.strategy_options)),
      parameters_(sync_->held(task.parameters())),
      trained_(parameters_.begin(), parameters_.begin() + put_trained_first(parameters_, task.parameters())),
      optimizer_(trained_, options_.optimizer) {
  if (options_.shards > 0) ordered_buffers_.emplace(task.buffers(), options_.shards / data_.size());
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
  task_.set_training(true);
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

std::vector<detail::BatchPart> SupervisedStep::parts_of(const data::Batch& batch) const {
  return options_.shards > 0 ? detail::cut_shards(batch, options_.shards, data_)
                             : detail::cut(batch, options_.accumulate, mesh_.shares(batch.global_size), data_.rank());
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
  const double loss = add_gradients(batch);
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
  const double own_loss = add_gradients(batch);
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

/// Leaves the gradients of the whole batch in .grad, and returns its loss. Where all ranks know it, a loss of a part
/// that is not finite is returned before its backward: all ranks stop there or none does.
double SupervisedStep::add_gradients(const data::Batch& batch) {
  double loss = 0;
  if (ordered_buffers_) ordered_buffers_->before_step();
  for (const auto& part : parts_of(batch)) {
    const ContextScope scope(context_of(part.batch));
    sync_->before_forward(part.place);
    auto own = task_.loss(part.batch, part.sizes);
    if (ordered_buffers_) ordered_buffers_->end_shard(part.batch.images.size(0));
    const auto values = loss_numbers(own);
    TORCH_INTERNAL_ASSERT(values.size() == part.shares.size(), "a step's loss has ", values.size(), " numbers");
    for (size_t i = 0; i < values.size(); ++i) {
      if (!endings_ && !std::isfinite(values[i])) return values[i];
      loss += part.shares[i] * values[i];
    }
    sync_->before_backward(own, part.place);
    {
      const PhaseScope phase(Phase::backward);
      own.backward(start_of_backward(own, part.shares, scale_ ? scale_->scale() : 1));
    }
    own.reset();  // with what its graph holds
    sync_->after_backward(part.place);
  }
  if (ordered_buffers_) ordered_buffers_->end_step(data_);
  return loss;
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
  for (const auto& parameter : trained_) (parameter.placement.is_everywhere() ? own : shared).push_back(parameter);
  clip_grad_norm(own, options_.clip, group);
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
  for (const auto& buffer : task_.buffers()) tensors.push_back(Parameter::replicated(buffer.name, buffer.tensor));
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
