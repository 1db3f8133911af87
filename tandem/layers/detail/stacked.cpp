#include "tandem/layers/detail/stacked.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tandem/base/context.h"
#include "tandem/base/value_observer.h"

namespace tandem::layers::detail {
namespace {

bool are_in_a_row(std::span<const Tensor> parts) {
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const auto &part = parts[i], &next = parts[i + 1];
    if (!part.is_contiguous() || !next.is_contiguous() || !part.is_alias_of(next)) return false;
    if (part.storage_offset() + part.numel() != next.storage_offset()) return false;
  }
  return true;
}

struct Stacked : torch::autograd::Function<Stacked> {
  static Tensor forward(torch::autograd::AutogradContext* context, at::TensorList parts) {
    auto sizes = parts[0].sizes().vec();
    std::vector<int64_t> rows;
    for (const auto& part : parts) rows.push_back(part.size(0));
    sizes[0] = c10::sum_integers(rows);
    context->saved_data["rows"] = rows;
    return parts[0].variable_data().as_strided(sizes, parts[0].strides());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const PhaseScope phase(Phase::backward);
    return gradients[0].split_with_sizes(context->saved_data["rows"].toIntVector(), 0);
  }
};

}  // namespace

Tensor stacked(std::span<const Tensor> parts) {
  if (parts.size() == 1) return parts[0];
  const at::TensorList all(parts.data(), parts.size());
  if (!are_in_a_row(parts)) return at::cat(all);
  const auto whole = Stacked::apply(all);
  if (auto* observer = value_observer()) observer->computed("stack", whole, {parts[0]});
  return whole;
}

}  // namespace tandem::layers::detail
