#include "tandem/parallel/parallel_apply.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "tandem/parallel/detail/replica_gradients.h"

namespace tandem::parallel {
namespace {

using detail::ReplicaGradients;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// One replica: where its graph begins and ends.
struct Graph {
  std::vector<Tensor> inputs;  // leaves of this graph, in place of the caller's tensors
  std::vector<Edge> outputs;   // of the values that require a gradient
};

/// Stands in the caller's graph for those of all replicas.
///   gradients in   of the replicas' values that require one, replica by replica
///   gradients out  of the replicas' inputs, replica by replica, then of the weights
class Replicas : public Node {
 public:
  Replicas(std::unique_ptr<ReplicaGradients> gradients, ReplicaThreads& threads)
      : gradients_(std::move(gradients)), threads_(threads) {}

  variable_list apply(variable_list&& of_values) override {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !at::GradMode::is_enabled(),
        "replicas: backward has no gradient of its own: for second derivatives use one replica");
    TORCH_CHECK(!graphs.empty(), "replicas: backward runs a second time: keep the graph (retain_graph) in the first");
    const auto count = static_cast<int>(graphs.size());
    gradients_->begin(count);
    threads_.run(count, [&](int replica) { backward(replica, of_values); });
    return collected();
  }

  void will_release_variables() override { keeps_graphs_ = false; }
  void release_variables() override { graphs.clear(); }

  std::vector<Graph> graphs;

 private:
  void backward(int replica, variable_list& of_values) {
    const ReplicaGradients::OfReplica scope(*gradients_, replica);
    const auto& graph = graphs[static_cast<size_t>(replica)];
    size_t first = 0;
    for (int i = 0; i < replica; ++i) first += graphs[static_cast<size_t>(i)].outputs.size();
    std::vector<Edge> roots;
    variable_list gradients;
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      if (!of_values[first + i].defined()) continue;
      roots.push_back(graph.outputs[i]);
      gradients.push_back(std::move(of_values[first + i]));
    }
    if (!roots.empty()) {
      torch::autograd::Engine::get_default_engine().execute(roots, gradients, keeps_graphs_, /*create_graph=*/false,
                                                            /*accumulate_grad=*/true, {});
    }
    gradients_->finish(replica);
  }

  variable_list collected() {
    variable_list all;
    for (auto& graph : graphs) {
      for (auto& input : graph.inputs) {
        all.push_back(input.defined() ? input.grad() : Tensor());
        if (input.defined()) input.mutable_grad().reset();
      }
    }
    for (auto& gradient : gradients_->take()) all.push_back(std::move(gradient));
    return all;
  }

  std::unique_ptr<ReplicaGradients> gradients_;
  ReplicaThreads& threads_;
  bool keeps_graphs_ = true;
};

bool requires_grad(const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

std::vector<std::vector<Tensor>> trained(const std::vector<std::vector<Tensor>>& weights) {
  std::vector<std::vector<Tensor>> all;
  for (const auto& of_replica : weights) {
    auto& own = all.emplace_back();
    std::ranges::copy_if(of_replica, std::back_inserter(own), requires_grad);
  }
  if (all.empty()) all.emplace_back();
  return all;
}

/// The same tensor as a leaf.
Tensor leaf_of(const Tensor& tensor) { return requires_grad(tensor) ? tensor.detach().requires_grad_() : tensor; }

std::vector<Nested> run_plainly(const ReplicaForward& forward, const std::vector<Nested>& parts,
                                ReplicaThreads& threads) {
  std::vector<Nested> values(parts.size());
  threads.run(static_cast<int>(parts.size()), [&](int replica) {
    values[static_cast<size_t>(replica)] = forward(replica, parts[static_cast<size_t>(replica)]);
  });
  return values;
}

/// The node behind the inputs of all replicas and the weights, with a graph for each replica and their leaves.
std::shared_ptr<Replicas> node_of(const std::vector<Nested>& parts, std::unique_ptr<ReplicaGradients> gradients,
                                  const std::vector<Tensor>& weights, ReplicaThreads& threads) {
  std::shared_ptr<Replicas> node(new Replicas(std::move(gradients), threads), torch::autograd::deleteNode);
  node->graphs.resize(parts.size());
  torch::autograd::edge_list edges;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const auto& tensor : parts[i].tensors()) {
      edges.push_back(requires_grad(tensor) ? torch::autograd::impl::gradient_edge(tensor) : Edge());
      node->graphs[i].inputs.push_back(requires_grad(tensor) ? leaf_of(tensor) : Tensor());
    }
  }
  for (const auto& weight : weights) edges.push_back(torch::autograd::impl::gradient_edge(weight));
  node->set_next_edges(std::move(edges));
  return node;
}

Nested with_leaves(const Nested& part, const std::vector<Tensor>& leaves) {
  auto tensors = part.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (leaves[i].defined()) tensors[i] = leaves[i];
  }
  return part.with(tensors);
}

/// The replica's values as the caller's graph has them. Keeps where they come from in `graph`.
Nested value_of(const Nested& own, Graph& graph, const std::shared_ptr<Node>& node) {
  auto tensors = own.tensors();
  for (auto& tensor : tensors) {
    if (!requires_grad(tensor)) continue;
    graph.outputs.push_back(torch::autograd::impl::gradient_edge(tensor));
    tensor = tensor.detach();
    torch::autograd::set_history(tensor, node);
  }
  return own.with(tensors);
}

}  // namespace

std::vector<Nested> parallel_apply(const ReplicaForward& forward, const std::vector<Nested>& parts,
                                   const std::vector<std::vector<Tensor>>& weights, ReplicaThreads& threads) {
  const auto learned = trained(weights);
  const bool has_gradients =
      at::GradMode::is_enabled() && (!learned[0].empty() || std::ranges::any_of(parts, [](const Nested& part) {
        return std::ranges::any_of(part.tensors(), requires_grad);
      }));
  if (!has_gradients) return run_plainly(forward, parts, threads);

  auto gradients = std::make_unique<ReplicaGradients>(learned);
  auto& shared = *gradients;
  const auto node = node_of(parts, std::move(gradients), learned[0], threads);
  std::vector<Nested> leaves;
  for (size_t i = 0; i < parts.size(); ++i) leaves.push_back(with_leaves(parts[i], node->graphs[i].inputs));
  auto values = [&] {
    const ReplicaGradients::Scope scope(shared);
    return run_plainly(forward, leaves, threads);
  }();
  for (size_t i = 0; i < parts.size(); ++i) values[i] = value_of(values[i], node->graphs[i], node);
  return values;
}

}  // namespace tandem::parallel
