#include "tandem/parallel/detail/unused_parameters.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <unordered_set>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"

namespace tandem::parallel::detail {
namespace {

using torch::autograd::Node;

/// All nodes that a backward from `root` runs.
std::unordered_set<const Node*> reached_from(const Node* root) {
  std::unordered_set<const Node*> reached;
  std::vector<const Node*> to_visit = {root};
  while (!to_visit.empty()) {
    const auto* node = to_visit.back();
    to_visit.pop_back();
    if (node == nullptr || !reached.insert(node).second) continue;
    for (const auto& edge : node->next_edges()) to_visit.push_back(edge.function.get());
  }
  return reached;
}

}  // namespace

UnusedParameters::UnusedParameters(const std::vector<Tensor>& parameters, bool find, bool is_static)
    : find_(find), is_static_(is_static) {
  if (!are_allowed()) return;
  for (const auto& parameter : parameters) {
    ends_.push_back(torch::autograd::impl::grad_accumulator(parameter));
    index_of_[ends_.back().get()] = ends_.size() - 1;
  }
}

const std::vector<size_t>& UnusedParameters::in(const Tensor& loss) {
  if (!are_allowed() || are_settled()) return own_;
  own_.clear();
  const auto edge = torch::autograd::impl::gradient_edge(loss);
  const auto reached = reached_from(loss.requires_grad() ? edge.function.get() : nullptr);
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (!reached.contains(ends_[i].get())) own_.push_back(i);
  }
  return own_;
}

void UnusedParameters::find_nowhere(const std::vector<uint8_t>& used, comm::ProcessGroup& group) {
  if (!are_allowed() || are_settled()) return;
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  const auto anywhere = at::empty({static_cast<int64_t>(used.size())}, at::kByte);
  if (!used.empty()) std::memcpy(anywhere.data_ptr(), used.data(), used.size());
  comm::all_reduce_(anywhere, group, comm::Reduce::max);
  nowhere_.clear();
  const auto* flags = anywhere.const_data_ptr<uint8_t>();
  for (size_t i = 0; i < used.size(); ++i) {
    if (flags[i] == 0) nowhere_.push_back(i);
  }
  is_settled_ = true;
}

}  // namespace tandem::parallel::detail
