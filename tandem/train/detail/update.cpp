#include "tandem/train/detail/update.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/context.h"
#include "tandem/base/finite.h"
#include "tandem/comm/agree.h"
#include "tandem/train/detail/divergence.h"
#include "tandem/train/detail/sparse_gradient.h"

namespace tandem::train::detail {
namespace {

constexpr auto kModelAxes = parallel::Axes::all() - parallel::kBatchAxes;

/// Of terms, each of which has a share; the first that is not finite says what the sum is.
double loss_of(const std::vector<double>& shares, const std::vector<double>& terms) {
  double loss = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (!std::isfinite(terms[i])) return terms[i];
    loss += shares[i] * terms[i];
  }
  return loss;
}

std::vector<Tensor> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.tensor.grad());
  return gradients;
}

/// Index of the first parameter whose flag, of those from `first` on, says that it is not finite.
std::optional<int64_t> first_bad(const std::vector<double>& numbers, size_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (numbers[first + i] == 0) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

/// Beside a later step, of whose activations these numbers are none.
double sum_over_ranks(double own, comm::ProcessGroup& group) {
  const CategoryScope scratch(Category::communication);
  return comm::reduce_number(own, comm::Reduce::sum, group);
}

}  // namespace

void check_rows(bool is_set, const std::string& option, const std::string& why) {
  if (!is_set) return;
  const auto name = option.substr(0, option.find(' '));
  throw SettingsError(option + " with a parameter that is updated before " + why,
                      "leave " + name + " out, or update that parameter with the others");
}

Update::Update(Task& task, parallel::GradientSync& sync, const std::vector<Parameter>& trained, comm::ProcessGroup& all,
               comm::ProcessGroup& model, const UpdateOptions& options)
    : task_(task),
      sync_(sync),
      trained_(trained),
      all_(all),
      model_(model),
      options_(options),
      optimizer_(trained, options.optimizer) {
  const auto rows = task_.row_parameter();
  const bool steps_in_backward = rows && rows->steps_in_backward;
  if (rows && rows->moves_all_rows) optimizer_.move_all_rows(optimizer_.place_of(rows->name));
  if (options.ema != 0) {
    if (rows && rows->moves_all_rows) {
      throw SettingsError("ema is " + std::to_string(options.ema) + " with rows that are updated late",
                          "leave ema out, or update all rows in each step");
    }
    average_.emplace(trained, options.ema);
  }
  check_rows(steps_in_backward && options.clip > 0, "clip is " + std::to_string(options.clip),
             "the norm of all gradients is known");
  if (!options.loss_scale) return;
  scale_.emplace(*options.loss_scale);
  check_rows(steps_in_backward, "loss_scale is " + std::to_string(scale_->scale()), "all gradients are known");
  may_skip_ = scale_->is_dynamic();
}

void Update::allow_skips(int64_t in_a_row) {
  const auto rows = task_.row_parameter();
  check_rows(rows && rows->steps_in_backward, "skip_nonfinite is " + std::to_string(in_a_row),
             "all gradients are known");
  may_skip_ = true;
}

Update::Begun::Begun(Update& update, double learning_rate)
    : numbers(device_of(update.trained_)),
      learning_rate_(learning_rate),
      hooks_(update.task_, update.optimizer_, learning_rate),
      buffers_(update.may_skip_ ? copies_of(update.task_.buffers()) : std::vector<Tensor>()) {}

/// Which are clipped together: where ranks train apart, those of a rank's own samples, and the others.
std::vector<Update::ClippedTogether> Update::clipped() const {
  if (options_.clip <= 0) return {};
  if (sync_.is_synchronous()) return {{trained_, &all_, norm_sum(), parallel::Axes::all()}};
  ClippedTogether own = {{}, &model_, NormSum::quickly, kModelAxes},
                  shared = {{}, &all_, NormSum::quickly, parallel::Axes::all()};
  for (const auto& parameter : trained_) {
    (parameter.placement.is_replicated_along(parallel::kBatchAxes) ? own : shared).parameters.push_back(parameter);
  }
  return {std::move(own), std::move(shared)};
}

std::vector<GradientNorm> Update::start_norms(StepNumbers& numbers) {
  std::vector<GradientNorm> norms;
  auto clipped = this->clipped();
  if (!clipped.empty()) join_rows(trained_);
  for (auto& [parameters, group, sum, along] : clipped) norms.emplace_back(std::move(parameters), *group, sum, along);
  for (auto& norm : norms) norm.start(numbers);
  return norms;
}

Reading Update::end(Begun& begun, const std::vector<double>& shares, int64_t step) {
  const at::NoGradGuard no_grad;
  const PhaseScope phase(Phase::optimizer);
  auto& numbers = begun.numbers;
  if (scale_) scale_->unscale(trained_);
  const auto first_flag = numbers.count();
  note_finite(gradients_of(trained_), numbers.add(static_cast<int64_t>(trained_.size())));
  begun.hooks_.note(numbers);
  auto norms = start_norms(numbers);
  const auto& read = numbers.read();
  double loss = loss_of(shares, read);
  if (summed_ != nullptr) loss = sum_over_ranks(loss, *summed_);
  if (!std::isfinite(loss)) return skip(loss_fault("loss of step ", step + 1, loss), begun);
  auto fault = first_bad(read, first_flag, trained_.size());
  if (!fault) fault = begun.hooks_.nonfinite(read);
  if (may_skip_) {
    if (auto reading = leave_out(begun, loss, fault, step)) return *std::move(reading);
  }
  for (auto& norm : norms) norm.clip(norm.end(numbers), options_.clip);
  optimizer_.step(begun.learning_rate_);
  optimizer_.zero_grad();
  sync_.after_step();
  if (average_) average_->step();
  return {.loss = loss, .fault = fault};
}

/// nullopt: no rank has found a fault.
std::optional<Reading> Update::leave_out(const Begun& begun, double loss, std::optional<int64_t> fault, int64_t step) {
  const auto first = agree(false, fault, all_).fault;
  if (!first) {
    if (scale_) scale_->count_good_step();
    return std::nullopt;
  }
  if (!scale_ || !scale_->leave_out()) return skip(gradient_fault(trained_, *first, step + 1, all_), begun);
  undo(begun);
  return Reading{.loss = loss, .is_left_out = true};
}

/// A step that ends late leaves the servers' weights as they are, and is over for all.
Reading Update::skip(const NonFiniteError& fault, const Begun& begun) {
  undo(begun);
  if (options_.ends_late) sync_.after_step();
  return {.skipped = fault};
}

void Update::undo(const Begun& begun) {
  const auto buffers = task_.buffers();
  for (size_t i = 0; i < begun.buffers_.size(); ++i) buffers[i].tensor.copy_(begun.buffers_[i]);
  optimizer_.zero_grad();
  optimizer_.drop_step();
}

std::vector<memory::Change> Update::bytes(const std::vector<int64_t>& rows) const {
  std::vector<memory::Change> changes;
  int64_t norms = 0;
  for (const auto& [parameters, group, sum, along] : clipped()) {
    norms = std::max(norms, clip_memory(parameters, sum, along));
  }
  if (options_.clip > 0) changes.push_back({norms, Category::activations, 0});
  changes.push_back({optimizer_.dense_bytes(), Category::optimizer, 0});
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0) changes.push_back({optimizer_.row_bytes(i, rows[i]), Category::optimizer, 0});
  }
  return changes;
}

int64_t Update::bytes_of_copies() const {
  int64_t bytes = 0;
  if (!may_skip_) return bytes;
  for (const auto& buffer : task_.buffers()) bytes += static_cast<int64_t>(buffer.tensor.nbytes());
  return bytes;
}

void Update::set_numbers(const storage::Fields& numbers) {
  if (scale_) scale_->set_numbers(numbers);
}

}  // namespace tandem::train::detail
