#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/memory/detail/plan_check.h"
#include "tandem/memory/detail/plan_time.h"
#include "tandem/memory/recompute_plan.h"

namespace tandem::memory {
namespace {

/// A step that executes a plan, block by block, with the books of what lives.
class Execution {
 public:
  explicit Execution(const std::vector<Stage>& stages)
      : stages_(stages), holders_(stages.size()), most_(stages.size()) {}

  void run(const RecomputePlan& plan) {
    forward(plan, /*is_replay=*/false);
    release(plan.back().last);
    backward(plan);
  }

  std::vector<PlanStep> steps;
  int64_t nanoseconds = 0, forwards = 0;

 private:
  // Flow i is what stage i passes on; flow -1 is the input of the chain, which nobody here holds.
  void hold(int flow) {
    if (flow >= 0) ++holders_[flow];
  }
  void release(int flow) {
    if (flow >= 0) --holders_[flow];
  }

  int64_t live() {
    std::ranges::fill(most_, 0);
    const auto see = [&](int stage, int64_t bytes) { most_[stage] = std::max(most_[stage], bytes); };
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (holders_[i] == 0) continue;
      see(static_cast<int>(i), stages_[i].output);
      for (const auto& shortcut : stages_[i].shortcuts) see(shortcut.stage, shortcut.bytes);
    }
    int64_t sum = kept_ + gradients_ + flow_gradient_;
    for (const int64_t bytes : most_) sum += bytes;
    return sum;
  }

  void end_step(PlanStep::What what, int stage, int64_t peak, double seconds) {
    steps.push_back({what, stage, peak, live()});
    nanoseconds += detail::nanoseconds(seconds);
    forwards += what == PlanStep::What::backward ? 0 : 1;
  }

  /// The input of the nodes is held when they begin, for this run; the output is when they have run.
  void forward(const RecomputePlan& nodes, bool is_replay) {
    for (const auto& node : nodes) {
      if (node.inner.empty()) {
        const bool ends_replay = is_replay && node.last == nodes.back().last;
        keep(node.first, stages_[node.first].keeps[node.keep], ends_replay);
        continue;
      }
      hold(node.first - 1);
      for (int i = node.first; i <= node.last; ++i) pass(i);
    }
  }

  void pass(int i) {
    hold(i);
    const int64_t peak = live() + stages_[i].forward_extra;
    release(i - 1);
    end_step(PlanStep::What::pass, i, peak, stages_[i].forward);
  }

  void keep(int i, const Keep& way, bool ends_replay) {
    hold(i);
    kept_ += way.bytes;
    const int64_t peak = live() + way.forward_extra;
    if (way.output) hold(i);
    if (!way.input) release(i - 1);
    end_step(PlanStep::What::keep, i, peak, detail::forward_seconds(way, ends_replay));
  }

  void backward(const RecomputePlan& nodes) {
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (node->inner.empty()) {
        backward(node->first, stages_[node->first].keeps[node->keep]);
        continue;
      }
      hold(node->first - 1);
      forward(node->inner, /*is_replay=*/true);
      release(node->last);
      backward(node->inner);
      release(node->first - 1);
    }
  }

  void backward(int i, const Keep& way) {
    flow_gradient_ = gradient_of(i);
    const int64_t peak = live() + way.backward_extra;
    kept_ -= way.bytes;
    if (way.output) release(i);
    if (way.input) release(i - 1);
    flow_gradient_ = gradient_of(i - 1);
    gradients_ += stages_[i].gradients;
    end_step(PlanStep::What::backward, i, peak, way.backward);
  }

  int64_t gradient_of(int flow) const {
    if (flow < 0) return 0;
    int64_t bytes = stages_[flow].output;
    for (const auto& shortcut : stages_[flow].shortcuts) bytes += shortcut.bytes;
    return bytes;
  }

  const std::vector<Stage>& stages_;
  std::vector<int> holders_;
  std::vector<int64_t> most_;  // of each stage's output
  int64_t kept_ = 0, gradients_ = 0, flow_gradient_ = 0;
};

Execution executed(const RecomputePlan& plan, const std::vector<Stage>& stages) {
  detail::check_plan(plan, stages);
  Execution execution(stages);
  execution.run(plan);
  return execution;
}

}  // namespace

std::vector<PlanStep> steps_of(const RecomputePlan& plan, const std::vector<Stage>& stages) {
  return executed(plan, stages).steps;
}

PlanCost cost_of(const RecomputePlan& plan, const std::vector<Stage>& stages) {
  const auto execution = executed(plan, stages);
  const auto highest = *std::ranges::max_element(execution.steps, {}, &PlanStep::peak);
  return {highest.peak, highest, execution.nanoseconds, execution.forwards};
}

}  // namespace tandem::memory
