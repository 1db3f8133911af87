#include "tandem/parallel/detail/block_backward.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace tandem::parallel::detail {

bool BlockBackward::is_in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

bool BlockBackward::watch(size_t block, const memory::Flow& input, const memory::Flow& output,
                          std::shared_ptr<Left> left) {
  bool is_reached = false;
  for (const auto& value : output) {
    if (!value.defined() || !value.requires_grad()) continue;
    if (std::ranges::any_of(input, [&](const Tensor& taken) { return taken.is_same(value); })) continue;
    value.register_hook([self = shared_from_this(), block, left](const Tensor&) { self->reach(block, left); });
    is_reached = true;
  }
  return is_reached;
}

void BlockBackward::reach(size_t block, const std::shared_ptr<Left>& left) {
  const int backward = torch::autograd::get_current_graph_task_id();
  if (backward != backward_) {
    end_at_once();
    backward_ = backward;
    torch::autograd::Engine::get_default_engine().queue_callback([self = shared_from_this(), backward] {
      if (self->backward_ != backward) return;
      self->leave_open_block();
      self->end();
    });
  }
  if (block_ == block) return;
  leave_open_block();
  block_ = block;
  left_ = left;
  enter(block, left.get());
}

void BlockBackward::leave_open_block() {
  const auto left = std::move(left_);
  if (const auto block = std::exchange(block_, std::nullopt)) leave(*block, left.get());
}

void BlockBackward::end_at_once() {
  left_.reset();
  if (const auto block = std::exchange(block_, std::nullopt)) abandon(*block);
  backward_ = -1;
}

}  // namespace tandem::parallel::detail
