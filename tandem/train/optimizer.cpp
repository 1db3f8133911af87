#include "tandem/train/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <ranges>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/agree.h"
#include "tandem/memory/meter.h"

namespace tandem::train {
namespace {

constexpr int64_t kBytesAtOnce = 512 << 10;  // of a sparse gradient at a time: copies of the rows stay in the cache

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
  check_decay("beta1", options.beta1);
  check_decay("beta2", options.beta2);
}

}  // namespace

Optimizer::Optimizer(std::vector<Parameter> parameters, const OptimizerOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  check_options(options);
  const CategoryScope scope(Category::optimizer);
  const bool adam = options.kind == OptimizerKind::adamw;
  for (const auto& parameter : parameters_) {
    const BlockScope block(memory::block_of(parameter.tensor));
    if (adam || options.momentum > 0) first_.push_back(at::zeros_like(parameter.tensor.detach()));
    if (adam) second_.push_back(at::zeros_like(parameter.tensor.detach()));
    if (adam) steps_.push_back(at::zeros({}, parameter.tensor.options().dtype(at::kFloat).requires_grad(false)));
  }
}

Optimizer::~Optimizer() = default;

namespace {

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
  auto& [weights, gradients, first, second, steps] = lists;
  if (options_.kind == OptimizerKind::sgd) {
    // The momentum starts at zero, which gives the same as torch's copy of the first gradient.
    at::_fused_sgd_(weights, gradients, first, options_.weight_decay, options_.momentum, learning_rate,
                    /*dampening=*/0.0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
  } else {
    at::_fused_adamw_(weights, gradients, first, second, {}, steps, learning_rate, options_.beta1, options_.beta2,
                      options_.weight_decay, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  }
}

void Optimizer::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::optimizer);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& gradient = parameters_[i].tensor.grad();
    if (!gradient.defined() || !gradient.is_sparse()) continue;
    if (!steps_.empty()) steps_[i].add_(1);
    const auto ids = gradient._indices().select(0, 0);
    const auto row_bytes = static_cast<int64_t>(gradient.element_size()) * std::max<int64_t>(1, gradient.size(1));
    const int64_t at_once = std::max<int64_t>(1, kBytesAtOnce / row_bytes);
    for (int64_t begin = 0; begin < ids.numel(); begin += at_once) {
      const int64_t count = std::min(at_once, ids.numel() - begin);
      step_some_rows(i, {.count = count, .ids = ids.narrow(0, begin, count)},
                     gradient._values().narrow(0, begin, count), learning_rate);
    }
  }
  step_dense(learning_rate);
  if (lazy_) lazy_->end_step(learning_rate);
}

void Optimizer::step_dense(double learning_rate) {
  Lists lists;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& tensor = parameters_[i].tensor;
    if (!tensor.grad().defined() || tensor.grad().is_sparse()) continue;
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
  Lists lists;
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
  check(options_.kind == OptimizerKind::sgd, "rows that a step skips cannot be updated late with AdamW, wanted SGD");
  const CategoryScope scope(Category::optimizer);
  lazy_.emplace(parameters_[parameter].tensor.detach(), first_.empty() ? Tensor() : first_[parameter],
                options_.momentum, options_.weight_decay, options_.nesterov);
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
  const bool adam = options_.kind == OptimizerKind::adamw;
  add(adam ? "exp_avg" : "momentum_buffer", first_, &Parameter::beside);
  add("exp_avg_sq", second_, &Parameter::beside);
  add("step", steps_, &Parameter::whole_beside);
  return state;
}

namespace {

constexpr int64_t kPiece = 1 << 16;  // numbers

/// Sum of squares in float64, piece by piece: libtorch's norm in another type would copy the whole tensor.
double square_of(const Tensor& gradient) {
  const auto flat = gradient.reshape({-1});
  double square = 0;
  for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
    const auto piece = flat.narrow(0, begin, std::min(kPiece, flat.numel() - begin)).to(at::kDouble);
    square += at::dot(piece, piece).item<double>();
  }
  return square;
}

}  // namespace

int64_t clip_memory(const std::vector<Parameter>& parameters) {
  int64_t most = 0;
  for (const auto& [name, tensor, placement] : parameters) {
    const int64_t flat = tensor.is_contiguous() ? 0 : static_cast<int64_t>(tensor.nbytes());
    const int64_t piece = tensor.scalar_type() == at::kDouble ? 0 : std::min(kPiece, tensor.numel());
    most = std::max(most, flat + (piece + 1) * int64_t{sizeof(double)});
  }
  return most;
}

double clip_grad_norm(const std::vector<Parameter>& parameters, double largest, comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  double everywhere = 0, of_parts = 0;
  bool has_parts = parameters.empty();  // a rank without parameters has peers that hold them
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters) {
    const auto& placement = parameter.placement;
    has_parts |= !placement.is_everywhere();
    if (!parameter.tensor.grad().defined()) continue;
    const auto& gradient = parameter.tensor.grad();
    gradients.push_back(gradient.is_sparse() ? gradient._values() : gradient);
    if (placement.is_everywhere()) {
      everywhere += square_of(gradients.back());
    } else if (placement.counts_on(group.rank())) {
      of_parts += square_of(gradients.back());
    }
  }
  if (has_parts) of_parts = comm::reduce_number(of_parts, comm::Reduce::sum, group);
  const double norm = std::sqrt(everywhere + of_parts);
  if (norm > largest) at::_foreach_mul_(gradients, largest / (norm + 1e-6));
  return norm;
}

}  // namespace tandem::train
