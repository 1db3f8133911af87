#include "tandem/base/tangent.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>

namespace tandem {
namespace {

using torch::autograd::ForwardADLevel;

constexpr uint64_t kLevel = 0;  // torch has no other

thread_local int open_scopes = 0;

/// torch's level of tangents, which the whole process shares: open while a scope lives.
class Level {
 public:
  static Level& get() {
    static Level level;
    return level;
  }

  void enter() {
    const std::lock_guard lock(mutex_);
    if (scopes_++ == 0) ForwardADLevel::get_next_idx();
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (--scopes_ == 0) ForwardADLevel::release_idx(kLevel);
  }

 private:
  std::mutex mutex_;
  int scopes_ = 0;
};

void drop_tangent(const Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (meta != nullptr && meta->fw_grad_ && meta->fw_grad_->contains(kLevel)) meta->fw_grad_->reset(kLevel);
}

}  // namespace

TangentScope::TangentScope(std::vector<Tensor> tensors, const std::vector<Tensor>& tangents)
    : tensors_(std::move(tensors)) {
  TORCH_INTERNAL_ASSERT(tensors_.size() == tangents.size());
  Level::get().enter();
  ++open_scopes;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tangents[i].defined()) tensors_[i]._set_fw_grad(tangents[i], kLevel, /*is_inplace_op=*/false);
  }
}

TangentScope::~TangentScope() {
  for (const auto& tensor : tensors_) drop_tangent(tensor);
  --open_scopes;
  Level::get().leave();
}

bool TangentScope::is_open() { return open_scopes > 0; }

Tensor tangent_of(const Tensor& tensor) { return tensor.defined() ? Tensor(tensor._fw_grad(kLevel)) : Tensor(); }

Tensor primal_of(const Tensor& tensor) { return tangent_of(tensor).defined() ? tensor._fw_primal(kLevel) : tensor; }

Tensor with_tangent(const Tensor& primal, const Tensor& tangent) {
  return tangent.defined() ? at::_make_dual(primal, tangent, kLevel) : primal;
}

Tensor differentiable_log_softmax(const Tensor& x, int64_t dim) {
  const auto shifted = x - x.detach().amax(dim, /*keepdim=*/true);
  return shifted - shifted.exp().sum(dim, /*keepdim=*/true).log();
}

Tensor differentiable_cross_entropy(const Tensor& scores, const Tensor& targets, double smoothing) {
  const auto logs = differentiable_log_softmax(scores, 1);
  const auto is_counted = targets.ne(-1);
  auto sum = at::nll_loss(logs, targets, {}, at::Reduction::Sum, /*ignore_index=*/-1);
  if (smoothing > 0) {
    const auto of_all = (logs.mean(1) * is_counted).sum();
    sum = sum * (1 - smoothing) - of_all * smoothing;
  }
  return sum / is_counted.sum().clamp_min(1);
}

}  // namespace tandem
