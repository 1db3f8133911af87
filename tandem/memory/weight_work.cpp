#include "tandem/memory/weight_work.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>

#include "tandem/base/context.h"
#include "tandem/memory/given_gradients.h"

namespace tandem::memory {
namespace {

thread_local std::shared_ptr<WeightWork> innermost_work;

}  // namespace

std::shared_ptr<WeightWork> weight_work() { return innermost_work; }

WeightWorkScope::WeightWorkScope(std::shared_ptr<WeightWork> work)
    : before_(std::exchange(innermost_work, std::move(work))) {}

WeightWorkScope::~WeightWorkScope() { innermost_work = std::move(before_); }

void WeightWork::leave(std::vector<Tensor> weights, std::vector<Tensor> reads, Gradients gradients) {
  std::vector<int64_t> versions;
  for (const auto& tensor : reads) versions.push_back(tensor._version());
  items_.push_back(
      {std::move(weights), std::move(gradients), std::move(reads), std::move(versions), current_context().block});
}

void WeightWork::add_ending(int block, std::shared_ptr<Ending> ending) {
  endings_.emplace_back(block, std::move(ending));
}

std::shared_ptr<WeightWork::Ending> WeightWork::ending_of(int block) const {
  const auto at = std::ranges::find(endings_, block, [](const auto& ending) { return ending.first; });
  return at == endings_.end() ? nullptr : at->second;
}

void WeightWork::run() {
  const PhaseScope phase(Phase::backward);
  std::map<const c10::TensorImpl*, int> uses;  // that are still to come
  std::map<int, int> left;                     // items of a block
  for (const auto& item : items_) {
    for (const auto& weight : item.weights) uses[weight.unsafeGetTensorImpl()] += 1;
    ++left[item.block];
  }
  std::map<const c10::TensorImpl*, Tensor> sums;
  for (auto& item : std::exchange(items_, {})) {
    run(item, uses, sums);
    if (--left.at(item.block) > 0) continue;
    if (const auto ending = ending_of(item.block)) ending->ended();
  }
  for (auto& [block, ending] : std::vector(endings_.rbegin(), endings_.rend())) {
    if (!left.contains(block)) ending->ended();
  }
  endings_.clear();
}

void WeightWork::run(Item& item, std::map<const c10::TensorImpl*, int>& uses,
                     std::map<const c10::TensorImpl*, Tensor>& sums) {
  const BlockScope block(item.block);
  for (size_t i = 0; i < item.reads.size(); ++i) {
    TORCH_CHECK(item.reads[i]._version() == item.versions[i], "backward: a tensor of shape ", item.reads[i].sizes(),
                " was changed in place before the gradients of weights were worked out from it, wanted it as it was: "
                "use an operation that is not in place");
  }
  auto gradients = [&] {
    const at::NoGradGuard no_grad;
    return item.gradients();
  }();
  item.gradients = {};
  item.reads.clear();
  for (size_t i = 0; i < item.weights.size(); ++i) {
    const auto& weight = item.weights[i];
    if (!weight.defined() || !weight.requires_grad()) continue;
    auto& sum = sums[weight.unsafeGetTensorImpl()];
    if (sum.defined()) {
      const at::NoGradGuard no_grad;
      sum.add_(gradients[i]);
    } else {
      sum = std::move(gradients[i]);
    }
    gradients[i].reset();
    if (--uses[weight.unsafeGetTensorImpl()] > 0) continue;
    run_backward({torch::autograd::impl::gradient_edge(weight)}, {std::exchange(sum, {})});
  }
}

}  // namespace tandem::memory
