#include "tandem/train/detail/weight_average.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/memory/meter.h"

namespace tandem::train::detail {
namespace {

constexpr int64_t kNumbersAtOnce = 32 << 10;  // stay in a CPU's cache from one operation to the next

/// Calls `action` with the same pieces of two tensors that lie alike.
template <class Action>
void for_each_piece(const Tensor& a, const Tensor& b, const Action& action) {
  const bool lie_alike = a.is_non_overlapping_and_dense() && b.strides() == a.strides();
  if (!a.is_cpu() || !lie_alike) return action(a, b);
  const auto in_memory_order = [](const Tensor& tensor) { return at::as_strided(tensor, {tensor.numel()}, {1}); };
  const auto flat_a = in_memory_order(a), flat_b = in_memory_order(b);
  for (int64_t first = 0; first < a.numel(); first += kNumbersAtOnce) {
    const int64_t count = std::min(kNumbersAtOnce, a.numel() - first);
    action(flat_a.narrow(0, first, count), flat_b.narrow(0, first, count));
  }
}

}  // namespace

WeightAverage::WeightAverage(std::vector<Parameter> weights, double decay)
    : weights_(std::move(weights)), decay_(decay) {
  if (!(decay > 0 && decay < 1)) {
    throw SettingsError("ema is " + std::to_string(decay) + ", wanted 0 or more and less than 1");
  }
  const CategoryScope scope(Category::optimizer);
  for (const auto& weight : weights_) {
    const BlockScope block(memory::block_of(weight.tensor));
    averages_.push_back(weight.tensor.detach().clone());
  }
}

/// In place, and with one rounding an operation: libtorch's lerp rounds the last numbers of a tensor in another way
/// than the others.
void WeightAverage::step() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < averages_.size(); ++i) {
    for_each_piece(averages_[i], weights_[i].tensor.detach(),
                   [&](Tensor average, const Tensor& weight) { average.sub_(weight).mul_(decay_).add_(weight); });
  }
}

void WeightAverage::swap() {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::optimizer);
  for (size_t i = 0; i < averages_.size(); ++i) {
    for_each_piece(averages_[i], weights_[i].tensor.detach(), [](Tensor average, Tensor weight) {
      const auto before = weight.clone();
      weight.copy_(average);
      average.copy_(before);
    });
  }
}

std::vector<Parameter> WeightAverage::averages() const {
  std::vector<Parameter> all;
  for (size_t i = 0; i < averages_.size(); ++i) all.push_back(weights_[i].beside(weights_[i].name, averages_[i]));
  return all;
}

std::vector<Parameter> WeightAverage::weights() const {
  std::vector<Parameter> all;
  for (const auto& weight : weights_) all.push_back(weight.beside("optimizer.weight." + weight.name, weight.tensor));
  return all;
}

}  // namespace tandem::train::detail
