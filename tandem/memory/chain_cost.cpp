#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <chrono>
#include <set>

#include "tandem/memory/chain.h"
#include "tandem/memory/meter.h"

namespace tandem::memory {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int64_t numbers_in(const std::vector<Tensor>& tensors) {
  int64_t count = 0;
  for (const auto& tensor : tensors) count += tensor.numel();
  return count;
}

/// Takes the gradients and buffers of a block away, and gives them back in the end.
class Untouched {
 public:
  explicit Untouched(const Block& block) : parameters_(parameters_of(block)), buffers_(buffers_of(block)) {
    for (auto& parameter : parameters_) {
      gradients_.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
    for (const auto& buffer : buffers_) copies_.push_back(buffer.clone());
  }
  ~Untouched() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
  }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

 private:
  std::vector<Tensor> parameters_, gradients_, buffers_, copies_;
};

/// The same values, as the block would get them from the one before it.
Flow leaves_of(const Flow& flow, bool requires_grad) {
  Flow leaves;
  for (const auto& value : flow) {
    leaves.push_back(value.detach());
    leaves.back().requires_grad_(requires_grad && value.is_floating_point());
  }
  return leaves;
}

int64_t own_bytes(const Flow& outputs, const Flow& inputs) {
  std::set<const void*> seen;
  for (const auto& input : inputs) seen.insert(input.storage().data());
  int64_t bytes = 0;
  for (const auto& output : outputs) {
    if (seen.insert(output.storage().data()).second) bytes += static_cast<int64_t>(output.storage().nbytes());
  }
  return bytes;
}

void measure_backward(const Flow& outputs, ProbeScope& probe, Cost& cost) {
  std::vector<Tensor> roots, gradients;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    gradients.push_back(at::ones_like(output));
  }
  if (roots.empty()) return;
  const auto live = probe.account().live_bytes();
  probe.reset_peak();
  const auto start = Clock::now();
  torch::autograd::backward(roots, gradients);
  cost.backward = seconds_since(start);
  cost.backward_extra = probe.account().peak_bytes() - live;
}

/// Returns the block's outputs, without their graph.
Flow measure_block(const Block& block, const Flow& inputs, Cost& cost) {
  const ProbeScope aside;  // for the copies
  const Untouched untouched(block);
  ProbeScope probe;
  const CategoryScope scope(Category::activations);
  const auto start = Clock::now();
  const auto outputs = block.forward(inputs);
  cost.forward = seconds_since(start);
  const auto books = probe.account();
  cost.output = own_bytes(outputs, inputs);
  cost.saved = books.live_bytes() - cost.output;
  cost.forward_extra = books.peak_bytes() - books.live_bytes();
  measure_backward(outputs, probe, cost);
  return leaves_of(outputs, /*requires_grad=*/true);
}

}  // namespace

std::vector<Cost> measure(const Chain& chain, const Flow& input) {
  TORCH_CHECK(meter_is_installed(), "chain: the memory meter is not installed, wanted install_meter() before");
  const at::AutoGradMode with_gradients(true);
  std::vector<Cost> costs;
  auto flow = leaves_of(input, /*requires_grad=*/false);
  for (const auto& block : chain.blocks) {
    Cost cost{
        .name = block.name, .parameters = numbers_in(parameters_of(block)), .buffers = numbers_in(buffers_of(block))};
    flow = measure_block(block, flow, cost);
    costs.push_back(std::move(cost));
  }
  return costs;
}

}  // namespace tandem::memory
