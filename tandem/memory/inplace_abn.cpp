#include "tandem/memory/inplace_abn.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "tandem/memory/abn_passes.h"
#include "tandem/memory/batch_norm.h"
#include "tandem/memory/detail/saved_tensor_hooks.h"

namespace tandem::memory {
namespace {

using kernels::Invertible;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

class AbnBackward final : public torch::autograd::Node {
 public:
  /// All tensors are saved as operations save theirs, so that hooks can drop them.
  explicit AbnBackward(AbnKept kept)
      : numbers_(std::exchange(kept.numbers, {}), /*is_output=*/false),
        sides_(std::exchange(kept.sides, {}), /*is_output=*/false),
        kept_(std::move(kept)) {}

  /// After z has this node as its history. Backward inverts z, which makes a small error large.
  void keep(const Tensor& z) {
    const detail::ExactScope exact;
    z_ = SavedVariable(z, /*is_output=*/true);
  }

  variable_list apply(variable_list&& gradients) override {
    Tensor gradient = std::move(gradients[0]);
    if (!gradient.defined()) return variable_list(3);
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), "in-place batch normalisation: its gradient has none of ",
                                "its own: for second derivatives use norm batch");
    Tensor z = z_.unpack(shared_from_this());
    if (!torch::autograd::get_current_graph_task_keep_graph()) z_.reset_data();  // so that z may be free to overwrite
    auto kept = kept_;
    kept.numbers = numbers_.unpack();
    kept.sides = sides_.unpack();
    const auto made = abn_backward(kept, std::move(gradient), std::move(z));
    return {made.input, made.weight, made.bias};
  }

  void release_variables() override {
    z_.reset_data();
    numbers_.reset_data();
    sides_.reset_data();
  }
  std::string name() const override { return "InplaceAbn"; }

 private:
  SavedVariable numbers_, sides_, z_;
  AbnKept kept_;  // without tensors
};

Tensor composed(const Tensor& x, Invertible activation, const AbnState& state, bool training) {
  const auto& weight = state.weight;
  const auto bound = at::where(weight < 0, weight.clamp_max(-kLeastWeight), weight.clamp_min(kLeastWeight));
  auto bounded = state;
  bounded.weight = weight + (bound - weight).detach();
  auto y = batch_norm(x, bounded, training);
  switch (activation) {
    case Invertible::leaky_relu:
      return at::leaky_relu_(y, kLeakySlope);
    case Invertible::elu:
      return at::elu_(y);
    case Invertible::swish:
      return at::silu(y);
    case Invertible::identity:
      break;
  }
  return y;
}

/// x itself, or a copy that may be overwritten.
Tensor overwritable(Tensor x) {
  const auto format = x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  if (!x.is_contiguous(format)) return x.contiguous(format);
  if (x.is_view()) return x.clone();
  const bool recorded = at::GradMode::is_enabled() && x.grad_fn() != nullptr;
  TORCH_CHECK_VALUE(!recorded || x.storage().use_count() == 1,
                    "in-place batch normalisation: its input, the output of ", x.grad_fn()->name(),
                    ", is also held elsewhere, such as for that operation's backward, wanted it to be free to ",
                    "overwrite: use norm batch here, or copy the input");
  return recorded || x.storage().use_count() == 1 ? x : x.clone();
}

}  // namespace

Tensor inplace_abn(Tensor x, Invertible activation, const AbnState& state, bool training, AbnForm form) {
  if (!abn_has_kernel(x, state)) return composed(x, activation, state, training);
  x = overwritable(std::move(x));
  const bool recorded = torch::autograd::compute_requires_grad(x, state.weight, state.bias);
  torch::autograd::check_inplace(x, recorded);
  auto edges = torch::autograd::collect_next_edges(x, state.weight, state.bias);
  auto kept = abn_forward(x, activation, state, training, form);
  torch::autograd::increment_version(x);
  if (!recorded) return x;
  const auto node = std::make_shared<AbnBackward>(std::move(kept));
  node->set_next_edges(std::move(edges));
  torch::autograd::rebase_history(x, node);
  node->keep(x);
  return x;
}

}  // namespace tandem::memory
