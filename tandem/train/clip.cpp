#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/train/detail/gradient_norm.h"
#include "tandem/train/detail/sparse_gradient.h"

namespace tandem::train {
namespace {

/// Those of a sparse gradient are its rows.
Tensor rows_or_whole(const Tensor& gradient) {
  return gradient.defined() && gradient.is_sparse() ? gradient._values() : gradient;
}

/// Whether the numbers can be read where they are.
bool is_plain(const Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() && tensor.is_non_overlapping_and_dense() && (type == at::kFloat || type == at::kDouble);
}

void add_plain(const Tensor& numbers, kernels::SquareSum& sum) {
  if (numbers.scalar_type() == at::kFloat) return sum.add(numbers.const_data_ptr<float>(), numbers.numel());
  sum.add(numbers.const_data_ptr<double>(), numbers.numel());
}

}  // namespace

namespace detail {

/// Without parameters: a rank whose peers hold them.
GradientNorm::GradientNorm(std::vector<Parameter> parameters, comm::ProcessGroup& group, NormSum sum,
                           parallel::Axes along)
    : parameters_(std::move(parameters)), group_(group), sum_(sum), along_(along), has_parts_(parameters_.empty()) {
  for (const auto& parameter : parameters_) has_parts_ |= !parameter.placement.is_replicated_along(along);
}

void GradientNorm::start(StepNumbers& numbers) {
  Tensor places;
  if (sum_ == NormSum::quickly) {
    place_ = numbers.count();
    places = numbers.add(3);
  }
  for (const auto& [name, tensor, placement] : parameters_) {
    const auto gradient = rows_or_whole(tensor.grad());
    if (!gradient.defined()) continue;
    const bool is_alike = placement.is_replicated_along(along_);
    if (!is_alike && !placement.counts_along(along_)) continue;
    if (sum_ == NormSum::exactly) {
      add_exactly(gradient, is_alike ? alike_ : of_parts_);
    } else {
      add_square(gradient, places[2], places[is_alike ? 0 : 1]);
    }
  }
}

double GradientNorm::end(StepNumbers& numbers) {
  if (sum_ == NormSum::exactly) return end_exactly();
  const auto& all = numbers.read();
  double square = all[place_];
  if (has_parts_) square += comm::reduce_number(all[place_ + 1], comm::Reduce::sum, group_);
  return std::sqrt(square);
}

void GradientNorm::add_exactly(const Tensor& gradient, kernels::SquareSum& sum) const {
  if (is_plain(gradient)) return add_plain(gradient, sum);
  for_each_piece(gradient, [&](const Tensor& piece) { add_plain(piece.to(at::kCPU, at::kDouble), sum); });
}

double GradientNorm::end_exactly() {
  if (has_parts_) {
    auto& digits = of_parts_.digits;
    comm::all_reduce_(at::from_blob(digits.data(), {kernels::SquareSum::kDigits}, at::kLong), group_);
    for (size_t i = 0; i < digits.size(); ++i) alike_.digits[i] += digits[i];
  }
  return std::sqrt(alike_.value());
}

void GradientNorm::clip(double norm, double largest) const {
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters_) {
    if (parameter.tensor.grad().defined()) gradients.push_back(rows_or_whole(parameter.tensor.grad()));
  }
  if (norm > largest && !gradients.empty()) at::_foreach_mul_(gradients, largest / (norm + 1e-6));
}

}  // namespace detail

int64_t clip_memory(const std::vector<Parameter>& parameters, NormSum sum, parallel::Axes along) {
  int64_t most = 0;
  for (const auto& parameter : parameters) {
    const auto& placement = parameter.placement;
    const bool counts = placement.is_replicated_along(along) || placement.counts_along(along);
    if (!counts || (sum == NormSum::exactly && is_plain(parameter.tensor))) continue;
    most = std::max(most, detail::square_bytes(parameter.tensor));
  }
  return most;
}

double clip_grad_norm(const std::vector<Parameter>& parameters, double largest, comm::ProcessGroup& group, NormSum sum,
                      parallel::Axes along) {
  const at::NoGradGuard no_grad;
  detail::join_rows(parameters);
  detail::StepNumbers numbers(detail::device_of(parameters));
  detail::GradientNorm norm(parameters, group, sum, along);
  norm.start(numbers);
  const double before = norm.end(numbers);
  norm.clip(before, largest);
  return before;
}

}  // namespace tandem::train
