#include "tandem/memory/detail/keep_frame.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/nn/module.h>

#include "tandem/memory/detail/tensor_trace.h"

namespace tandem::memory::detail {
namespace {

using torch::autograd::SavedVariable;

const void* storage_of(const Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

/// Keeps the address of a storage, not its memory.
c10::weak_intrusive_ptr<c10::StorageImpl> weak_storage_of(const Tensor& tensor) {
  return c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
}

/// The same memory in another form.
Tensor with_form(const Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  auto form = alias_of(tensor);
  form.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return form;
}

bool is_weight(const at::TensorBase& tensor) { return tensor.is_leaf() && tensor.requires_grad(); }

class KeepHooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit KeepHooks(std::shared_ptr<KeepFrame> frame) : frame_(std::move(frame)) {}

  void call_pack_hook(const Tensor& tensor) override {
    trace_.emplace(tensor, ValueCheck::none);
    if (frame_->must_stay(tensor)) {
      plain_ = frame_->save_as_it_is(tensor);
    } else {
      packed_ = frame_->pack(tensor);
      strides_.assign(tensor.strides().begin(), tensor.strides().end());
      sizes_.assign(tensor.sizes().begin(), tensor.sizes().end());
    }
  }

  Tensor call_unpack_hook() override {
    TORCH_CHECK(!trace_->is_changed(), frame_->where(), "saved tensor (", trace_->text(), ") is at ",
                trace_->versions(),
                ": it was changed in place after forward saved it; use an operation that is not in place");
    return packed_ ? with_form(packed_->restore(), sizes_, strides_, 0) : alias_of(plain_.unpack());
  }

 private:
  std::shared_ptr<KeepFrame> frame_;
  std::optional<TensorTrace> trace_;
  SavedVariable plain_;
  std::shared_ptr<Packed> packed_;
  c10::SmallVector<int64_t, 4> sizes_, strides_;
};

}  // namespace

Packed::Packed(const KeepWay& way, const Tensor& numbers, HookSource* outer)
    : way_(way),
      count_(numbers.numel()),
      options_(numbers.options().requires_grad(std::nullopt)),
      last_(c10::intrusive_ptr<c10::StorageImpl>()) {
  const at::NoGradGuard no_grad;
  const HookScope hooks(outer);
  const ExactScope exact;
  for (const auto& part : way.pack(numbers)) parts_.emplace_back(part, /*is_output=*/false);
}

Tensor Packed::restore() {
  const std::lock_guard lock(mutex_);
  const at::NoGradGuard no_grad;
  if (auto storage = last_.lock(); storage && version_.current_version() == 0) {
    auto numbers = at::empty({0}, options_).set_(c10::Storage(std::move(storage)), 0, {count_}, {1});
    numbers.unsafeGetTensorImpl()->set_version_counter(version_);
    return numbers;
  }
  std::vector<Tensor> parts;
  for (const auto& part : parts_) parts.push_back(part.unpack());
  auto numbers = way_.unpack(parts, count_, options_);
  last_ = weak_storage_of(numbers);
  version_ = numbers.unsafeGetTensorImpl()->version_counter();
  return numbers;
}

KeepFrame::KeepFrame(const KeepWay& way, const KeepOptions& options)
    : way_(way), where_(options.name.empty() ? "keep_as: " : "keep_as[" + options.name + "]: ") {
  const auto add = [&](const Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) weights_.insert(storage_of(tensor));
  };
  for (const auto& module : options.modules) {
    for (const auto& parameter : module->parameters()) add(parameter);
    for (const auto& buffer : module->buffers()) add(buffer);
  }
}

Flow KeepFrame::run(const std::function<Flow(const Flow&)>& forward, const Flow& inputs) {
  outer_ = HookScope::innermost();
  for (const auto& input : inputs) {
    if (input.defined() && input.has_storage()) inputs_.insert(storage_of(input));
  }
  const HookScope scope(*this);
  auto outputs = forward(inputs);
  known_.clear();
  inputs_.clear();
  return outputs;
}

std::unique_ptr<torch::autograd::SavedVariableHooks> KeepFrame::make_hooks() {
  return std::make_unique<KeepHooks>(shared_from_this());
}

bool KeepFrame::must_stay(const Tensor& tensor) const {
  constexpr int64_t kFewest = 1024;
  if (way_.is_lossy && ExactScope::is_open()) return true;
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || !tensor.is_non_overlapping_and_dense()) return true;
  if (tensor.dim() < 2 || tensor.numel() < kFewest || !way_.can_keep(tensor)) return true;
  const auto* storage = storage_of(tensor);
  if (weights_.contains(storage)) return true;
  // A recomputation makes leaves of its inputs.
  return !inputs_.contains(storage) && (is_weight(tensor) || (tensor.is_view() && is_weight(tensor._base())));
}

/// A result would own its own node, and so itself.
SavedVariable KeepFrame::save_as_it_is(const Tensor& tensor) const {
  const HookScope hooks(outer_);
  return {tensor.is_leaf() ? tensor : alias_of(tensor), /*is_output=*/false};
}

std::shared_ptr<Packed> KeepFrame::pack(const Tensor& tensor) {
  const Numbers numbers(storage_of(tensor), tensor.storage_offset(), tensor.numel(), tensor.scalar_type(),
                        static_cast<uint32_t>(tensor._version()));
  const auto found = known_.find(numbers);
  if (found != known_.end()) {
    if (auto packed = found->second.packed.lock()) return packed;
  }
  const auto flat = with_form(tensor, {tensor.numel()}, {1}, tensor.storage_offset());
  auto packed = std::make_shared<Packed>(way_, flat, outer_);
  known_.insert_or_assign(numbers, Known{weak_storage_of(tensor), packed});
  return packed;
}

}  // namespace tandem::memory::detail
