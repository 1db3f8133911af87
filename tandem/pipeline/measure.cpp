#include "tandem/pipeline/measure.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "tandem/base/context.h"
#include "tandem/base/median.h"
#include "tandem/base/seconds.h"
#include "tandem/memory/given_gradients.h"
#include "tandem/memory/weight_work.h"
#include "tandem/pipeline/detail/held_bytes.h"

namespace tandem::pipeline {
namespace {

/// A forward that waits for its backward.
struct AloneGraph {
  memory::Flow inputs;
  std::vector<torch::autograd::Edge> edges;
  std::vector<Tensor> outputs;  // as empty as can be: shapes of gradients
  std::shared_ptr<memory::WeightWork> work;
};

/// A tensor of that shape and type that takes a byte or so.
Tensor shape_of(const Tensor& value) {
  return at::empty({}, value.options().requires_grad(false)).expand(value.sizes());
}

/// By an action of one kind, in each of its runs.
struct Taken {
  std::vector<double> seconds, bytes;  // bytes: how many more are held after it
};

/// One run of a rank's list.
class RunAlone {
 public:
  RunAlone(const Program& program, int rank, Stages& stages,
           const std::function<memory::Flow(int stage, int micro_batch)>& input)
      : list_(program.lists[rank]), stages_(stages), input_(input) {
    for (const auto& action : list_) {
      if (action.what == What::weight_gradient) later_.insert({What::forward, action.stage, action.micro_batch});
    }
  }

  /// Adds what each action takes.
  void run(std::map<std::pair<int, What>, Taken>& taken) {
    for (const auto& action : list_) {
      if (is_message(action.what) || is_of_head(action.what)) continue;
      const ContextScope context(stages_.context_of(action.micro_batch));
      auto& its = taken[{action.stage, action.what}];
      const auto before = detail::held_bytes();
      its.seconds.push_back(seconds_of(action));
      its.bytes.push_back(static_cast<double>(detail::held_bytes() - before));
    }
  }

 private:
  double seconds_of(const Action& action) {
    const Action forward = {What::forward, action.stage, action.micro_batch};
    if (action.what == What::forward) return run_forward(action, graphs_[forward]);
    const PhaseScope phase(Phase::backward);
    auto& graph = graphs_.at(forward);
    double seconds = 0;
    if (action.what == What::weight_gradient) {
      const auto start = std::chrono::steady_clock::now();
      graph.work->run();
      seconds = seconds_since(start);
    } else {
      seconds = run_backward(graph);
    }
    if (action.what != What::input_gradient) graphs_.erase(forward);
    return seconds;
  }

  double run_forward(const Action& action, AloneGraph& graph) {
    for (const auto& value : input_(action.stage, action.micro_batch)) {
      graph.inputs.push_back(value.detach().set_requires_grad(value.requires_grad()));
    }
    if (later_.contains(action)) graph.work = std::make_shared<memory::WeightWork>();
    const auto start = std::chrono::steady_clock::now();
    auto output = [&] {
      const memory::WeightWorkScope scope(graph.work);
      return memory::run(stages_.chain(action.stage, action.micro_batch), graph.inputs);
    }();
    const double seconds = seconds_since(start);
    for (auto& value : output) {
      if (!value.requires_grad()) continue;
      graph.edges.push_back(torch::autograd::impl::gradient_edge(value));
      graph.outputs.push_back(shape_of(value));
    }
    return seconds;
  }

  static double run_backward(AloneGraph& graph) {
    std::vector<Tensor> gradients;
    for (const auto& output : std::exchange(graph.outputs, {})) {
      gradients.push_back(at::ones(output.sizes(), output.options()));
    }
    const auto edges = std::exchange(graph.edges, {});
    const auto start = std::chrono::steady_clock::now();
    if (!edges.empty()) memory::run_backward(edges, std::move(gradients));
    const double seconds = seconds_since(start);
    graph.inputs.clear();
    return seconds;
  }

  const std::vector<Action>& list_;
  Stages& stages_;
  const std::function<memory::Flow(int stage, int micro_batch)>& input_;
  std::set<Action> later_;  // forwards whose weight gradients are actions of their own
  std::map<Action, AloneGraph> graphs_;
};

}  // namespace

std::vector<StageCost> measure_stages(const Program& program, int rank, Stages& stages,
                                      const std::function<memory::Flow(int stage, int micro_batch)>& input,
                                      int rounds) {
  std::map<std::pair<int, What>, Taken> taken;
  for (int round = 0; round <= rounds; ++round) {
    if (round == 1) taken.clear();
    RunAlone(program, rank, stages, input).run(taken);
  }
  std::vector<StageCost> costs;
  for (const int stage : program.stages_of(rank)) {
    const auto of = [&](What what) { return median(taken[{stage, what}].seconds); };
    const auto bytes_of = [&](What what) { return std::llround(median(taken[{stage, what}].bytes)); };
    costs.push_back({.forward = of(What::forward),
                     .input_gradient = of(What::backward) + of(What::input_gradient),
                     .weight_gradient = of(What::weight_gradient),
                     .graph_bytes = bytes_of(What::forward),
                     .weight_work_bytes = -bytes_of(What::weight_gradient)});
  }
  return costs;
}

}  // namespace tandem::pipeline
