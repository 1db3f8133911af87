#include "tandem/train/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <ranges>
#include <unordered_set>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/memory/meter.h"
#include "tandem/train/detail/sparse_gradient.h"
#include "tandem/train/detail/whole_vectors.h"

namespace tandem::train {
namespace {

// Of a sparse gradient at a time: on a CPU copies of the rows stay in the cache; elsewhere each operation on them is
// the start of a kernel.
constexpr int64_t kBytesAtOnce = 512 << 10, kDeviceBytesAtOnce = 64 << 20;

int64_t bytes_of_row(const Tensor& matrix) {
  return static_cast<int64_t>(matrix.element_size()) * std::max<int64_t>(1, matrix.size(1));
}

int64_t rows_at_once(const Tensor& matrix) {
  return std::max<int64_t>(1, (matrix.is_cpu() ? kBytesAtOnce : kDeviceBytesAtOnce) / bytes_of_row(matrix));
}

void check(bool right, const std::string& fault, const std::string& remedy = "") {
  if (!right) throw SettingsError(fault, remedy);
}

void check_decay(const char* name, double value) {
  check(value >= 0 && value < 1,
        std::string(name) + " is " + std::to_string(value) + ", wanted 0 or more and less than 1");
}

void check_options(const OptimizerOptions& options) {
  check_decay("momentum", options.momentum);
  check(options.kind != OptimizerKind::sgd || !options.nesterov || options.momentum > 0,
        "nesterov is true with momentum 0, wanted a momentum above 0", "add nesterov=false for plain SGD");
  check(options.weight_decay >= 0, "weight_decay is negative, wanted 0 or more");
  for (const auto& group : options.groups) {
    check(group.weight_decay.value_or(0) >= 0, "weight_decay of a group is negative, wanted 0 or more");
    check(group.rate >= 0, "rate of a group is negative, wanted 0 or more");
  }
  check_decay("beta1", options.beta1);
  check_decay("beta2", options.beta2);
}

}  // namespace

ParameterGroup vectors_without_decay() {
  return {.takes = [](const Parameter& parameter) { return parameter.tensor.dim() <= 1; }, .weight_decay = 0.0};
}

Optimizer::Optimizer(std::vector<Parameter> parameters, const OptimizerOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  check_options(options);
  parallel::check_each_once("optimizer", parameters_);
  const CategoryScope scope(Category::optimizer);
  const bool adam = options.kind != OptimizerKind::sgd;
  for (const auto& parameter : parameters_) {
    numbers_.push_back(numbers_of(parameter));
    const BlockScope block(memory::block_of(parameter.tensor));
    if (adam || options.momentum > 0) first_.push_back(at::zeros_like(parameter.tensor.detach()));
    if (adam) second_.push_back(at::zeros_like(parameter.tensor.detach()));
    if (adam) steps_.push_back(step_count_of(parameter));
  }
}

Optimizer::~Optimizer() = default;

/// The parts of a parameter that this rank holds share one.
Tensor Optimizer::step_count_of(const Parameter& parameter) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (parameters_[i].name == parameter.name) return steps_[i];
  }
  return at::zeros({}, parameter.tensor.options().dtype(at::kFloat).requires_grad(false));
}

Optimizer::Numbers Optimizer::numbers_of(const Parameter& parameter) const {
  for (const auto& group : options_.groups) {
    if (group.takes(parameter)) return {group.weight_decay.value_or(options_.weight_decay), group.rate};
  }
  return {options_.weight_decay, 1};
}

namespace {

std::vector<Tensor> each_once(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> once;
  std::unordered_set<const void*> seen;
  for (const auto& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) once.push_back(tensor);
  }
  return once;
}

using Tensors = std::vector<Tensor>;

void fused_adam(const Tensors& weights, const Tensors& gradients, const Tensors& first, const Tensors& second,
                const Tensors& steps, double learning_rate, double weight_decay, const OptimizerOptions& options) {
  at::_fused_adam_(weights, gradients, first, second, {}, steps, learning_rate, options.beta1, options.beta2,
                   weight_decay, options.epsilon, /*amsgrad=*/false, /*maximize=*/false);
}

void fused_adamw(const Tensors& weights, const Tensors& gradients, const Tensors& first, const Tensors& second,
                 const Tensors& steps, double learning_rate, double weight_decay, const OptimizerOptions& options) {
  at::_fused_adamw_(weights, gradients, first, second, {}, steps, learning_rate, options.beta1, options.beta2,
                    weight_decay, options.epsilon, /*amsgrad=*/false, /*maximize=*/false);
}

/// The numbers of a tensor in the order in which they lie in memory.
Tensor in_memory_order(const Tensor& tensor) { return at::as_strided(tensor, {tensor.numel()}, {1}); }

}  // namespace

/// libtorch's fused kernels copy tensors that are not contiguous, such as weights with channels last. Each update works
/// on the numbers one by one: their order does not matter as long as it is the same for all tensors of a parameter.
void Optimizer::Lists::flatten() {
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<Tensor*> all = {&weights[i], &gradients[i]};
    if (!first.empty()) all.push_back(&first[i]);
    if (!second.empty()) all.push_back(&second[i]);
    const auto lies_alike = [&](const Tensor* tensor) {
      return tensor->is_non_overlapping_and_dense() && tensor->strides() == weights[i].strides();
    };
    if (weights[i].is_contiguous() || !std::ranges::all_of(all, lies_alike)) continue;
    for (auto* tensor : std::views::reverse(all)) *tensor = in_memory_order(*tensor);
  }
}

void Optimizer::update(Lists& lists, double learning_rate) const {
  lists.flatten();
  learning_rate *= lists.numbers.rate;
  auto [numbers, weights, gradients, first, second, steps] = lists;  // of the caller: it reads them afterwards
  const detail::WholeVectors vectors({&weights, &gradients, &first, &second}, steps);
  if (options_.kind == OptimizerKind::sgd) {
    // The momentum starts at zero, which gives the same as torch's copy of the first gradient.
    at::_fused_sgd_(weights, gradients, first, numbers.weight_decay, options_.momentum, learning_rate,
                    /*dampening=*/0.0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
  } else {
    const auto update = options_.kind == OptimizerKind::adam ? fused_adam : fused_adamw;
    update(weights, gradients, first, second, steps, learning_rate, numbers.weight_decay, options_);
  }
  vectors.write_back();
}

int64_t Optimizer::row_bytes(size_t parameter, int64_t rows) const {
  const auto& weight = parameters_[parameter].tensor;
  const int64_t copies = 1 + (first_.empty() ? 0 : 1) + (second_.empty() ? 0 : 1);
  return copies * std::min(rows, rows_at_once(weight)) * bytes_of_row(weight);
}

size_t Optimizer::place_of(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  TORCH_INTERNAL_ASSERT(found != parameters_.end(), "optimizer: no parameter is called ", name);
  return static_cast<size_t>(found - parameters_.begin());
}

void Optimizer::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::optimizer);
  detail::join_rows(parameters_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& gradient = parameters_[i].tensor.grad();
    if (!gradient.defined() || !gradient.is_sparse()) continue;
    if (!steps_.empty()) steps_[i].add_(1);
    const auto ids = gradient._indices().select(0, 0);
    const int64_t at_once = rows_at_once(gradient);
    for (int64_t begin = 0; begin < ids.numel(); begin += at_once) {
      const int64_t count = std::min(at_once, ids.numel() - begin);
      step_some_rows(i, {.count = count, .ids = ids.narrow(0, begin, count)},
                     gradient._values().narrow(0, begin, count), learning_rate);
    }
  }
  step_dense(learning_rate);
  if (lazy_) lazy_->end_step(learning_rate * lazy_rate_);
}

void Optimizer::step_dense(double learning_rate) {
  std::vector<Lists> groups;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& gradient = parameters_[i].tensor.grad();
    if (gradient.defined() && !gradient.is_sparse()) add(i, groups);
  }
  std::vector<Tensor> steps;
  for (const auto& lists : groups) steps.insert(steps.end(), lists.steps.begin(), lists.steps.end());
  if (!steps.empty()) at::_foreach_add_(each_once(steps), 1);
  for (auto& lists : groups) update(lists, learning_rate);
}

Optimizer::Lists& Optimizer::lists_of(size_t parameter, std::vector<Lists>& groups) const {
  const auto& tensor = parameters_[parameter].tensor;
  auto lists = std::ranges::find_if(groups, [&](const Lists& other) {
    const auto& one = other.weights.front();
    return other.numbers == numbers_[parameter] && one.dtype() == tensor.dtype() && one.device() == tensor.device();
  });
  if (lists == groups.end()) lists = groups.insert(lists, {.numbers = numbers_[parameter]});
  lists->weights.push_back(tensor);
  return *lists;
}

void Optimizer::add(size_t parameter, std::vector<Lists>& groups) const {
  auto& lists = lists_of(parameter, groups);
  lists.gradients.push_back(parameters_[parameter].tensor.grad());
  if (!first_.empty()) lists.first.push_back(first_[parameter]);
  if (!second_.empty()) lists.second.push_back(second_[parameter]);
  if (!steps_.empty()) lists.steps.push_back(steps_[parameter]);
}

int64_t Optimizer::dense_bytes() const {
  const int64_t lists = 2 + (first_.empty() ? 0 : 1) + (second_.empty() ? 0 : 1);
  std::vector<Lists> groups;  // which are updated one after the other
  for (size_t i = 0; i < parameters_.size(); ++i) lists_of(i, groups);
  int64_t most = 0;
  for (const auto& group : groups) {
    int64_t bytes = 0;
    for (const auto& weight : group.weights) bytes += detail::WholeVectors::bytes(weight, lists);
    most = std::max(most, bytes);
  }
  return most;
}

RowUpdate Optimizer::step_rows(size_t parameter, double learning_rate) {
  if (!steps_.empty()) steps_[parameter].add_(1);
  return [this, parameter, learning_rate](const Rows& rows, const Tensor& gradient) {
    const at::NoGradGuard no_grad;
    const CategoryScope scope(Category::optimizer);
    step_some_rows(parameter, rows, gradient, learning_rate);
  };
}

void Optimizer::step_some_rows(size_t parameter, const Rows& rows, const Tensor& gradient, double learning_rate) {
  if (rows.count == 0) return;
  const auto& weight = parameters_[parameter].tensor;
  Lists lists{.numbers = numbers_[parameter]};
  lists.weights = {rows.of(weight)};
  lists.gradients = {gradient};
  if (!first_.empty()) lists.first = {rows.of(first_[parameter])};
  if (!second_.empty()) lists.second = {rows.of(second_[parameter])};
  if (!steps_.empty()) lists.steps = {steps_[parameter]};
  update(lists, learning_rate);
  rows.put_back(weight.detach(), lists.weights[0]);
  if (!first_.empty()) rows.put_back(first_[parameter], lists.first[0]);
  if (!second_.empty()) rows.put_back(second_[parameter], lists.second[0]);
}

void Optimizer::move_all_rows(size_t parameter) {
  check(options_.kind == OptimizerKind::sgd, "rows that a step skips cannot be updated late with Adam, wanted SGD");
  const CategoryScope scope(Category::optimizer);
  lazy_.emplace(parameters_[parameter].tensor.detach(), first_.empty() ? Tensor() : first_[parameter],
                options_.momentum, numbers_[parameter].weight_decay, options_.nesterov);
  lazy_rate_ = numbers_[parameter].rate;
}

void Optimizer::prepare_rows(const Rows& rows) {
  if (lazy_) lazy_->prepare(rows);
}

void Optimizer::drop_step() {
  if (lazy_) lazy_->drop_step();
}

void Optimizer::settle() {
  if (lazy_) lazy_->settle();
}

void Optimizer::zero_grad() {
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

std::vector<Parameter> Optimizer::state() const {
  std::vector<Parameter> state;
  const auto add = [&](const char* kind, const std::vector<Tensor>& tensors, auto place) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& owner = parameters_[i];
      const auto name = std::string("optimizer.") + kind + "." + owner.name;
      state.push_back((owner.*place)(name, tensors[i]));
    }
  };
  const bool adam = options_.kind != OptimizerKind::sgd;
  add(adam ? "exp_avg" : "momentum_buffer", first_, &Parameter::beside);
  add("exp_avg_sq", second_, &Parameter::beside);
  std::unordered_set<const void*> listed;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!listed.insert(steps_[i].unsafeGetTensorImpl()).second) continue;
    state.push_back(parameters_[i].whole_beside("optimizer.step." + parameters_[i].name, steps_[i]));
  }
  return state;
}

}  // namespace tandem::train
