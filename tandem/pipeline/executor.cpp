#include "tandem/pipeline/executor.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>

#include "tandem/base/seconds.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/memory/given_gradients.h"
#include "tandem/memory/weight_work.h"
#include "tandem/pipeline/detail/held_bytes.h"

namespace tandem::pipeline {
namespace {

using comm::Message;
using torch::autograd::Edge;

/// What passes between two stages.
using Messages = std::vector<Message>;

/// A forward that waits for its backward.
struct Graph {
  memory::Flow inputs;      // leaves
  std::vector<Edge> edges;  // of the outputs that require a gradient
  Tensor loss;              // of the last stage
  std::shared_ptr<memory::WeightWork> work;
};

/// The gradients of the leaves that require one.
Messages take_gradients(memory::Flow& inputs) {
  Messages messages;
  for (auto& input : inputs) {
    if (!input.requires_grad()) continue;
    auto gradient = std::exchange(input.mutable_grad(), {});
    messages.push_back({gradient.defined() ? std::move(gradient) : at::zeros_like(input.detach())});
  }
  return messages;
}

}  // namespace

/// The gradients of shared weights, on one rank in one step.
class SharedGradients {
 public:
  /// `first_tag`: of as many as there are weights.
  SharedGradients(std::vector<SharedWeight> weights, const Program& program, comm::ProcessGroup& group, int first_tag)
      : group_(group), first_tag_(first_tag) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) {
      One one{.weight = weights[i].weight, .number = i};
      for (const int stage : weights[i].stages) {
        const int rank = program.rank_of.at(static_cast<size_t>(stage));
        if (std::ranges::find(one.ranks, rank) == one.ranks.end()) one.ranks.push_back(rank);
        if (rank == group.rank()) one.own_stages.insert(stage);
      }
      if (one.own_stages.empty() || one.ranks.size() == 1) continue;
      auto& gradient = one.weight.mutable_grad();
      if (gradient.defined()) one.earlier = gradient.clone(), gradient.zero_();
      weights_.push_back(std::move(one));
    }
  }

  void stage_has_ended(int stage) {
    for (auto& one : weights_) {
      if (one.own_stages.erase(stage) == 0 || !one.own_stages.empty()) continue;
      auto& gradient = one.weight.mutable_grad();
      if (!gradient.defined()) gradient = at::zeros_like(one.weight.detach());
      if (!is_first(one)) sent_.push_back(send(one, one.ranks[0]));
    }
  }

  /// When all stages have ended.
  void sum() {
    const at::NoGradGuard no_grad;
    for (auto& one : weights_) {
      auto& gradient = one.weight.mutable_grad();
      if (is_first(one)) {
        for (size_t i = 1; i < one.ranks.size(); ++i) gradient.add_(receive(one, one.ranks[i]));
        for (size_t i = 1; i < one.ranks.size(); ++i) sent_.push_back(send(one, one.ranks[i]));
      } else {
        gradient.copy_(receive(one, one.ranks[0]));
      }
      if (one.earlier.defined()) gradient.add_(one.earlier);
    }
    for (auto& handle : sent_) handle.wait();
  }

 private:
  struct One {
    Tensor weight;
    size_t number;
    std::vector<int> ranks = {};    // of its stages, in their order
    std::set<int> own_stages = {};  // that have not ended
    Tensor earlier = {};            // what the gradient was before the step
  };

  bool is_first(const One& one) const { return one.ranks[0] == group_.rank(); }
  int tag_of(const One& one) const { return first_tag_ + static_cast<int>(one.number); }
  comm::Handle send(const One& one, int to) const {
    return comm::send_message({one.weight.grad().clone()}, to, group_, tag_of(one));
  }
  Tensor receive(const One& one, int from) const { return comm::receive_message(from, group_, tag_of(one)).tensor; }

  comm::ProcessGroup& group_;
  int first_tag_;
  std::vector<One> weights_;
  std::vector<comm::Handle> sent_;
};

/// The books of one step on this rank.
class Executor::Step {
 public:
  Step(Executor& executor, Stages& stages)
      : executor_(executor),
        program_(executor.program_),
        group_(executor.group_),
        stages_(stages),
        list_(program_.lists[group_.rank()]),
        divides_head_(program_.divides_head()),
        shared_(program_.has_backward() ? stages.shared_weights() : std::vector<SharedWeight>(), program_, group_,
                2 * (program_.micro_batches + 1) * program_.num_stages()) {
    for (const int stage : program_.stages_of(group_.rank())) left_[stage] = program_.micro_batches;
  }

  void run(std::vector<Timed>* times) {
    for (size_t i = 0; i < list_.size(); ++i) {
      const double begin = times != nullptr ? now() : 0;
      do_action(i);
      for (const size_t sent : executor_.receipts_[i]) end_send(sent);
      if (times != nullptr) times->push_back({list_[i], begin, now(), detail::held_bytes()});
    }
    shared_.sum();
    while (!under_way_.empty()) end_send(under_way_.begin()->first);
  }

 private:
  static double now() { return seconds_since(std::chrono::steady_clock::time_point()); }

  void do_action(size_t i) {
    const auto& action = list_[i];
    if (is_of_head(action.what)) return run_head(i);
    if (is_send(action.what)) return send(i);
    if (is_receive(action.what)) return receive(action);
    const ContextScope context(stages_.context_of(action.micro_batch));
    if (action.what == What::forward) return forward(action);
    if (action.what != What::weight_gradient) {
      backward(action);
      if (action.what == What::input_gradient) return;
    } else {
      graphs_.at(graph_of(action)).work->run();
    }
    graphs_.erase(graph_of(action));
    if (--left_.at(action.stage) > 0) return;
    shared_.stage_has_ended(action.stage);
    stages_.end_backward(action.stage);
  }

  void run_head(size_t i) {
    const auto& action = list_[i];
    const ContextScope context(stages_.context_of(action.micro_batch));
    const PhaseScope phase(action.what == What::class_gradient ? Phase::backward : Phase::forward);
    auto handles = stages_.run_head(action);
    if (is_send(action.what)) under_way_[i] = std::move(handles);
  }

  static Action graph_of(const Action& action) { return {What::forward, action.stage, action.micro_batch}; }
  bool is_last(int stage) const { return stage + 1 == program_.num_stages(); }

  /// What goes from one stage to the next, or back, by the stage that it comes from.
  static Action output_of(int stage, int micro_batch) { return {What::send_output, stage, micro_batch}; }
  static Action gradient_of(int stage, int micro_batch) { return {What::send_gradient, stage, micro_batch}; }

  Messages take(const Action& from) { return std::move(between_.extract(from).mapped()); }

  void forward(const Action& action) {
    const auto [_, stage, micro_batch] = action;
    Graph graph;
    if (stage == 0) {
      graph.inputs = stages_.input(micro_batch);
    } else {
      for (auto& [tensor, requires_grad] : take(output_of(stage - 1, micro_batch))) {
        graph.inputs.push_back(tensor.detach().set_requires_grad(requires_grad && at::GradMode::is_enabled()));
      }
    }
    if (executor_.later_.contains({What::weight_gradient, stage, micro_batch})) {
      graph.work = std::make_shared<memory::WeightWork>();
    }
    memory::Flow output;
    {
      const memory::WeightWorkScope scope(graph.work);
      output = memory::run(stages_.chain(stage, micro_batch), graph.inputs);
    }
    keep_output(action, output, graph);
    if (program_.has_backward()) graphs_.emplace(graph_of(action), std::move(graph));
  }

  /// The memory of an output belongs to its message; the graph is known by its edge.
  void keep_output(const Action& action, memory::Flow& output, Graph& graph) {
    Messages messages;
    for (auto& tensor : output) {
      if (tensor.requires_grad()) graph.edges.push_back(torch::autograd::impl::gradient_edge(tensor));
      messages.push_back({tensor.detach(), tensor.requires_grad()});
      tensor.reset();
    }
    if (!is_last(action.stage)) {
      between_[output_of(action.stage, action.micro_batch)] = std::move(messages);
      return;
    }
    memory::Flow values;
    for (auto& message : messages) values.push_back(std::move(message.tensor));
    stages_.end_forward(action.micro_batch, values);
    if (!divides_head_) graph.loss = values[0];
  }

  void backward(const Action& action) {
    const PhaseScope phase(Phase::backward);
    const auto [_, stage, micro_batch] = action;
    auto& graph = graphs_.at(graph_of(action));
    const auto edges = std::exchange(graph.edges, {});
    if (is_last(stage)) {
      auto start = stages_.begin_backward(micro_batch, graph.loss);
      if (!start.defined()) start = at::ones_like(graph.loss);
      const auto held = divides_head_ ? Tensor() : start;  // as libtorch holds the gradient of a loss
      std::vector<Tensor> gradients;
      gradients.push_back(std::move(start));
      memory::run_backward(edges, std::move(gradients));
      graph.loss.reset();
    } else {
      std::vector<Tensor> gradients;
      for (auto& message : take(gradient_of(stage + 1, micro_batch))) gradients.push_back(std::move(message.tensor));
      TORCH_CHECK(edges.size() == gradients.size(), "pipeline: stage ", stage, " has ", edges.size(),
                  " outputs that require a gradient, and ", gradients.size(), " gradients");
      memory::run_backward(edges, std::move(gradients));
    }
    if (stage > 0) between_[gradient_of(stage, micro_batch)] = take_gradients(graph.inputs);
    graph.inputs.clear();
  }

  int tag_of(const Action& sent) const {
    return 2 * (sent.micro_batch * program_.num_stages() + sent.stage) + (sent.what == What::send_gradient ? 1 : 0);
  }
  /// What tells how many tensors a stage's messages have, as the message of a micro-batch that there is not.
  Action wire_of(const Action& sent) const { return {sent.what, sent.stage, program_.micro_batches}; }

  void send(size_t i) {
    const auto& action = list_[i];
    const int to = program_.rank_of[partner_of(action).stage], tag = tag_of(action);
    auto messages = take(action);
    const auto count = static_cast<int64_t>(messages.size());
    const auto [known, is_new] = executor_.counts_.emplace(wire_of(action), count);
    TORCH_CHECK(known->second == count, "pipeline: ", text_of(action), " has ", count, " tensors, wanted ",
                known->second, " as the micro-batches before");
    auto& handles = under_way_[i];
    if (is_new) {
      const auto head = at::scalar_tensor(count, at::kLong);
      handles.push_back(comm::send_message({head}, to, group_, tag_of(wire_of(action))));
    }
    for (auto& message : messages) handles.push_back(comm::send_message(std::move(message), to, group_, tag));
  }

  void end_send(size_t i) {
    auto sent = under_way_.extract(i);
    for (auto& handle : sent.mapped()) handle.wait();
  }

  void receive(const Action& action) {
    const auto sent = partner_of(action);
    const int from = program_.rank_of[sent.stage], tag = tag_of(sent);
    const auto [known, is_new] = executor_.counts_.emplace(wire_of(sent), 0);
    if (is_new) known->second = comm::receive_message(from, group_, tag_of(wire_of(sent))).tensor.item<int64_t>();
    auto& messages = between_[sent];
    for (int64_t i = 0; i < known->second; ++i) messages.push_back(comm::receive_message(from, group_, tag));
  }

  Executor& executor_;
  const Program& program_;
  comm::ProcessGroup& group_;
  Stages& stages_;
  const std::vector<Action>& list_;
  bool divides_head_;
  SharedGradients shared_;
  std::map<Action, Graph> graphs_;                         // by their forwards
  std::map<Action, Messages> between_;                     // by their sends, also where nothing is sent
  std::map<size_t, std::vector<comm::Handle>> under_way_;  // by their places in the list
  std::map<int, int> left_;                                // backwards of a stage that are still to come
};

Executor::Executor(Program program, comm::ProcessGroup& group)
    : program_(std::move(program)), group_(group), held_(prove(program_)) {
  TORCH_CHECK_VALUE(program_.num_ranks() == group.size(), "pipeline: the program is for ", program_.num_ranks(),
                    " ranks, wanted ", group.size());
  receipts_ = receipts_of(program_, group.rank());
  for (const auto& action : program_.lists[group.rank()]) {
    if (action.what == What::weight_gradient) later_.insert(action);
  }
}

void Executor::run(Stages& stages, std::vector<Timed>* times) { Step(*this, stages).run(times); }

}  // namespace tandem::pipeline
