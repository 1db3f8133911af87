#include "tandem/memory/detail/watched_weights.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/nn/module.h>

#include <string_view>
#include <typeinfo>
#include <unordered_set>

namespace tandem::memory::detail {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

struct Graph {
  std::vector<Tensor> leaves;  // that need a gradient
  bool has_custom_functions = false;
};

/// CppNode is a template without a base of its own.
bool is_custom_function(const Node& node) {
  return std::string_view(typeid(node).name()).find("CppNode") != std::string_view::npos;
}

/// What nodes from number `first_node` on of this thread lead to.
Graph graph_of(const Flow& outputs, uint64_t first_node) {
  Graph graph;
  std::vector<Node*> open;
  std::unordered_set<const Node*> seen;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const auto& output : outputs) {
    if (output.defined()) visit(output.grad_fn().get());
  }
  while (!open.empty()) {
    auto* node = open.back();
    open.pop_back();
    if (node->sequence_nr() < first_node) continue;  // older than the region
    if (const auto* leaf = dynamic_cast<AccumulateGrad*>(node)) graph.leaves.push_back(leaf->variable);
    graph.has_custom_functions = graph.has_custom_functions || is_custom_function(*node);
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return graph;
}

}  // namespace

void WatchedWeights::watch(const Flow& inputs, const Flow& outputs, uint64_t first_node, const Modules& modules) {
  modules_ = modules;
  auto graph = graph_of(outputs, first_node);
  has_custom_functions_ = graph.has_custom_functions;
  auto& weights = graph.leaves;
  for (const auto& module : modules) {
    for (auto& parameter : module->parameters()) weights.push_back(parameter);
  }
  std::unordered_set<const void*> seen;
  for (const auto& input : inputs) seen.insert(input.unsafeGetTensorImpl());
  for (const auto& weight : weights) {
    const void* tensor = weight.unsafeGetTensorImpl();
    if (seen.insert(tensor).second) weights_.push_back({TensorTrace(weight, ValueCheck::none), tensor});
  }
}

void WatchedWeights::check(const std::string& where) const {
  for (const auto& weight : weights_) {
    TORCH_CHECK(!weight.trace.is_changed(), where, "weight ", name_of(weight), "(", weight.trace.text(), ") is at ",
                weight.trace.versions(), ": it was changed since forward; change weights after backward");
  }
}

std::string WatchedWeights::name_of(const Weight& weight) const {
  for (const auto& module : modules_) {
    for (const auto& entry : module->named_parameters()) {
      if (entry.value().unsafeGetTensorImpl() == weight.tensor) return entry.key() + " ";
    }
  }
  return "";
}

}  // namespace tandem::memory::detail
