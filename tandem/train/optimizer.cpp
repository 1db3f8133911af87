#include "tandem/train/optimizer.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"

namespace tandem::train {
namespace {

void check(bool right, const std::string& fault, const std::string& remedy = "") {
  if (!right) throw SettingsError(fault, remedy);
}

void check_decay(const char* name, double value) {
  check(value >= 0 && value < 1,
        std::string(name) + " is " + std::to_string(value) + ", wanted 0 or more and less than 1");
}

void check_options(const OptimizerOptions& options) {
  check_decay("train.momentum", options.momentum);
  check(options.kind != OptimizerKind::sgd || !options.nesterov || options.momentum > 0,
        "train.nesterov is true with train.momentum 0, wanted a momentum above 0",
        "add train.nesterov=false for plain SGD");
  check(options.weight_decay >= 0, "train.weight_decay is negative, wanted 0 or more");
  check_decay("train.beta1", options.beta1);
  check_decay("train.beta2", options.beta2);
}

}  // namespace

Optimizer::Optimizer(std::vector<Parameter> parameters, const OptimizerOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  check_options(options);
  const memory::Scope scope(memory::Category::optimizer);
  const bool adam = options.kind == OptimizerKind::adamw;
  for (const auto& parameter : parameters_) {
    if (adam || options.momentum > 0) first_.push_back(at::zeros_like(parameter.tensor.detach()));
    if (adam) second_.push_back(at::zeros_like(parameter.tensor.detach()));
    if (adam) steps_.push_back(at::zeros({}, at::kFloat));
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::update(Lists& lists, double learning_rate) const {
  auto& [weights, gradients, first, second, steps] = lists;
  if (options_.kind == OptimizerKind::sgd) {
    // The momentum starts from zeros, which gives what torch's copy of the first gradient gives.
    at::_fused_sgd_(weights, gradients, first, options_.weight_decay, options_.momentum, learning_rate,
                    /*dampening=*/0.0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
  } else {
    at::_fused_adamw_(weights, gradients, first, second, {}, steps, learning_rate, options_.beta1, options_.beta2,
                      options_.weight_decay, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  }
}

void Optimizer::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  const memory::Scope scope(memory::Category::optimizer);
  Lists lists;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& tensor = parameters_[i].tensor;
    if (!tensor.grad().defined()) continue;
    lists.weights.push_back(tensor);
    lists.gradients.push_back(tensor.grad());
    if (!first_.empty()) lists.first.push_back(first_[i]);
    if (!second_.empty()) lists.second.push_back(second_[i]);
    if (!steps_.empty()) lists.steps.push_back(steps_[i]);
  }
  if (lists.weights.empty()) return;
  if (!lists.steps.empty()) at::_foreach_add_(lists.steps, 1);
  update(lists, learning_rate);
}

std::function<void(int64_t, const Tensor&)> Optimizer::step_rows(size_t parameter, double learning_rate) {
  if (!steps_.empty()) steps_[parameter].add_(1);
  return [this, parameter, learning_rate](int64_t begin, const Tensor& gradient) {
    const at::NoGradGuard no_grad;
    const memory::Scope scope(memory::Category::optimizer);
    const auto rows_of = [&](const Tensor& whole) {
      return std::vector<Tensor>{whole.narrow(0, begin, gradient.size(0))};
    };
    Lists lists;
    lists.weights = rows_of(parameters_[parameter].tensor);
    lists.gradients = {gradient};
    if (!first_.empty()) lists.first = rows_of(first_[parameter]);
    if (!second_.empty()) lists.second = rows_of(second_[parameter]);
    if (!steps_.empty()) lists.steps = {steps_[parameter]};
    update(lists, learning_rate);
  };
}

void Optimizer::zero_grad() {
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

std::vector<Parameter> Optimizer::state() const {
  std::vector<Parameter> state;
  const auto add = [&](const char* kind, const std::vector<Tensor>& tensors, bool split) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& owner = parameters_[i];
      state.push_back(
          {std::string("optimizer.") + kind + "." + owner.name, tensors[i], split ? owner.rows : std::nullopt});
    }
  };
  const bool adam = options_.kind == OptimizerKind::adamw;
  add(adam ? "exp_avg" : "momentum_buffer", first_, true);
  add("exp_avg_sq", second_, true);
  add("step", steps_, false);
  return state;
}

double clip_grad_norm(const std::vector<Parameter>& parameters, double largest, comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  double replicated = 0;
  auto split = at::zeros({1}, at::kDouble);
  bool any_split = false;
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters) {
    any_split |= parameter.rows.has_value();
    if (!parameter.tensor.grad().defined()) continue;
    gradients.push_back(parameter.tensor.grad());
    const double norm = at::linalg_vector_norm(gradients.back(), 2, {}, false, at::kDouble).item<double>();
    if (parameter.rows) split += norm * norm;
    if (!parameter.rows) replicated += norm * norm;
  }
  if (any_split) comm::all_reduce_(split, group);
  const double norm = std::sqrt(replicated + split.item<double>());
  if (norm > largest) at::_foreach_mul_(gradients, largest / (norm + 1e-6));
  return norm;
}

}  // namespace tandem::train
