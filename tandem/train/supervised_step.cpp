#include "tandem/train/supervised_step.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tandem/base/context.h"
#include "tandem/train/detail/divergence.h"
#include "tandem/train/detail/micro_batches.h"
#include "tandem/train/detail/row_hooks.h"
#include "tandem/train/evaluate.h"

namespace tandem::train {
namespace {

std::vector<Tensor> tensors_of(const std::vector<Buffer>& buffers) {
  std::vector<Tensor> tensors;
  for (const auto& buffer : buffers) tensors.push_back(buffer.tensor);
  return tensors;
}

std::vector<Tensor> trained_tensors(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> tensors;
  for (const auto& parameter : parameters) {
    if (parameter.tensor.requires_grad()) tensors.push_back(parameter.tensor);
  }
  return tensors;
}

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

std::vector<Tensor> copies_of(const std::vector<Buffer>& buffers) {
  const CategoryScope scope(Category::buffers);
  std::vector<Tensor> copies;
  for (const auto& buffer : buffers) copies.push_back(buffer.tensor.clone());
  return copies;
}

/// A parameter that is updated by rows changes before the rest of the step is known.
void check_option(bool is_set, const std::string& option, const std::string& why) {
  if (!is_set) return;
  const auto name = option.substr(0, option.find(' '));
  throw SettingsError(option + " with a parameter that is updated before " + why,
                      "leave " + name + " out, or update that parameter with the others");
}

/// Of two moments of a step: the one with the higher peak, and the most of each category in either.
memory::Composition highest_of(memory::Composition one, memory::Composition other) {
  if (one.account.peak_bytes() < other.account.peak_bytes()) std::swap(one, other);
  for (size_t i = 0; i < one.highest.size(); ++i) one.highest[i] = std::max(one.highest[i], other.highest[i]);
  return one;
}

Context context_of(const data::Batch& batch) {
  auto context = current_context();
  context.first_sample = batch.first_sample;
  return context;
}

}  // namespace

SupervisedStep::SupervisedStep(Task& task, SupervisedStepOptions options, comm::ProcessGroup& data,
                               comm::ProcessGroup& world)
    : task_(task),
      options_(std::move(options)),
      data_(data),
      world_(world),
      parameters_(task.parameters()),
      optimizer_(parameters_, options_.optimizer),
      sync_(options_.strategy->make(parameters_, tensors_of(task.buffers()), data, options_.strategy_options)) {
  const auto rows = task_.row_parameter();
  if (rows && rows->moves_all_rows) optimizer_.move_all_rows(rows->place);
  if (rows && rows->steps_in_backward) {
    check_option(options_.clip > 0, "clip is " + std::to_string(options_.clip), "the norm of all gradients is known");
  }
  check_option(rows && options_.accumulate > 1, "accumulate is " + std::to_string(options_.accumulate),
               "all micro-batches are known");
  task_.set_training(true);
}

void SupervisedStep::allow_skips(int64_t in_a_row) {
  const auto rows = task_.row_parameter();
  check_option(rows && rows->steps_in_backward, "skip_nonfinite is " + std::to_string(in_a_row),
               "all gradients are known");
  may_skip_ = true;
}

Reading SupervisedStep::run(const data::Batch& batch, int64_t step, double learning_rate) {
  task_.begin_step(step);
  const detail::RowHooks hooks(task_, optimizer_, learning_rate);
  const auto buffers_before = may_skip_ ? copies_of(task_.buffers()) : std::vector<Tensor>();
  double loss = 0;
  if (const auto fault = add_gradients(batch, step, loss)) return skip(*fault, buffers_before);
  const PhaseScope phase(Phase::optimizer);
  auto fault = detail::first_nonfinite_gradient(parameters_);
  if (!fault) fault = hooks.nonfinite();
  if (may_skip_) {
    if (const auto first = detail::agree(false, fault, world_).fault) {
      return skip(detail::gradient_fault(parameters_, *first, step + 1, world_), buffers_before);
    }
  }
  if (options_.clip > 0) clip_grad_norm(parameters_, options_.clip, world_);
  optimizer_.step(learning_rate);
  optimizer_.zero_grad();
  sync_->after_step();
  return {loss, fault, std::nullopt};
}

/// Leaves the gradients of the whole batch in .grad, and its loss in `loss`. Returns the fault of a loss that is not
/// finite: losses are equal on all ranks, so that all ranks stop there or none does.
std::optional<NonFiniteError> SupervisedStep::add_gradients(const data::Batch& batch, int64_t step, double& loss) {
  for (const auto& part : detail::cut(batch, options_.accumulate, data_)) {
    const ContextScope scope(context_of(part.batch));
    sync_->before_forward(part.place);
    const auto own = task_.loss(part.batch, part.sizes);
    const double value = own.item<double>();
    if (!std::isfinite(value)) return detail::loss_fault("loss of step ", step + 1, value);
    sync_->before_backward(own, part.place);
    {
      const PhaseScope phase(Phase::backward);
      own.backward(part.place.count > 1 ? at::full_like(own, part.share) : Tensor());
    }
    sync_->after_backward(part.place);
    loss += part.share * value;
  }
  return std::nullopt;
}

memory::Composition SupervisedStep::rehearse(const data::Batch& batch, memory::Account held) {
  if (may_skip_) held.add(Category::buffers, bytes_of(tensors_of(task_.buffers())));
  const auto parts = detail::cut(batch, options_.accumulate, data_);
  const auto images = [](const detail::BatchPart& part) { return part.batch.images.size(0); };
  if (parts.size() == 1) return rehearse_part(parts[0], held, /*adds=*/false);
  if (images(parts.back()) == images(parts[0]) || images(parts.back()) == 0) return rehearse_part(parts[0], held, true);
  const auto last = rehearse_part(parts.back(), held, true);  // also because the model may refuse its images
  if (images(parts[1]) == images(parts[0])) return rehearse_part(parts[0], held, true);
  return highest_of(rehearse_part(parts[0], held, false), last);
}

/// `adds`: all gradients are there, and backward adds to them: as from the second micro-batch on.
memory::Composition SupervisedStep::rehearse_part(const detail::BatchPart& part, memory::Account held, bool adds) {
  if (adds) held.add(Category::gradients, bytes_of(trained_tensors(parameters_)) - bytes_of(sync_->owned_gradients()));
  std::vector<memory::Change> update;
  if (options_.clip > 0) update.push_back({clip_memory(parameters_), Category::activations, 0});
  return memory::compose(blocks_of(part, adds, /*in_parts=*/false).records, held, update);
}

Step::Blocks SupervisedStep::rehearse_blocks(const data::Batch& batch, bool in_parts) {
  const auto part = detail::cut(batch, options_.accumulate, data_).front();
  return blocks_of(part, part.place.count > 1, in_parts);
}

Step::Blocks SupervisedStep::blocks_of(const detail::BatchPart& part, bool adds, bool in_parts) {
  const auto given_away = adds ? trained_tensors(parameters_) : sync_->owned_gradients();
  const detail::RowHooks hooks(task_, optimizer_, /*learning_rate=*/0.0);
  Blocks blocks{task_.chain(part.batch, part.sizes), {}};
  if (in_parts) blocks.chain = memory::in_parts(blocks.chain);
  blocks.records = memory::rehearse(blocks.chain, {part.batch.images}, {given_away});
  return blocks;
}

Reading SupervisedStep::skip(const NonFiniteError& fault, const std::vector<Tensor>& buffers_before) {
  const auto buffers = task_.buffers();
  for (size_t i = 0; i < buffers_before.size(); ++i) buffers[i].tensor.copy_(buffers_before[i]);
  optimizer_.zero_grad();
  optimizer_.drop_step();
  return {std::nullopt, std::nullopt, fault};
}

void SupervisedStep::unify() {
  settle();
  sync_->sync_buffers();
}

std::vector<Parameter> SupervisedStep::state() const {
  auto tensors = task_.weights();
  for (const auto& tensor : optimizer_.state()) tensors.push_back(tensor);
  for (const auto& tensor : sync_->state()) tensors.push_back(tensor);
  return tensors;
}

Scores SupervisedStep::evaluate(data::Loader& loader, const Tick& tick) {
  return train::evaluate(task_, loader, options_.num_classes, data_, tick);
}

}  // namespace tandem::train
