#include "tandem/memory/detail/tangent_region.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <unordered_set>

#include "tandem/base/context.h"
#include "tandem/base/tangent.h"
#include "tandem/memory/detail/autocast_settings.h"
#include "tandem/memory/detail/generator_state.h"
#include "tandem/memory/detail/replay.h"
#include "tandem/memory/detail/tensor_trace.h"

namespace tandem::memory::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Which values of a flow there are, and which of them have tangents. In a list the values come first.
struct Layout {
  std::vector<bool> has_value, has_tangent;

  static Layout of(const Flow& flow) {
    Layout layout;
    for (const auto& tensor : flow) {
      layout.has_value.push_back(tensor.defined());
      layout.has_tangent.push_back(tangent_of(tensor).defined());
    }
    return layout;
  }

  variable_list list_of(const Flow& flow) const {
    variable_list list;
    for (size_t i = 0; i < flow.size(); ++i) {
      if (has_value[i]) list.push_back(primal_of(flow[i]));
    }
    for (size_t i = 0; i < flow.size(); ++i) {
      if (has_tangent[i]) list.push_back(tangent_of(flow[i]));
    }
    return list;
  }

  Flow flow_of(const variable_list& list) const {
    Flow flow(has_value.size());
    size_t tangent = static_cast<size_t>(std::ranges::count(has_value, true)), value = 0;
    for (size_t i = 0; i < flow.size(); ++i) {
      if (has_value[i]) flow[i] = with_tangent(list[value++], has_tangent[i] ? list[tangent++] : Tensor());
    }
    return flow;
  }
};

/// One call of recompute_with_tangents().
struct Region : torch::CustomClassHolder {
  Region(const std::function<Flow(const Flow&)>& of_values, const RecomputeOptions& own, Layout of_inputs)
      : forward(of_values),
        options(own),
        inputs(std::move(of_inputs)),
        context(current_context()),
        autocast(AutocastSettings::now()) {
    for (const auto& generator : options.generators) generators.emplace_back(generator);
  }

  std::function<Flow(const Flow&)> forward;
  RecomputeOptions options;
  Layout inputs, outputs;
  Context context;
  AutocastSettings autocast;
  std::vector<GeneratorState> generators;
  std::vector<Tensor> trained;  // parameters that require a gradient
};

class RegionNode : public torch::autograd::Function<RegionNode> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList values,
                               const c10::intrusive_ptr<Region>& region) {
    context->saved_data["region"] = c10::IValue::make_capsule(region);
    variable_list inputs(values.begin(), values.end() - std::ssize(region->trained));
    context->save_for_backward(inputs);
    for (auto& input : inputs) input = alias_of(input);
    const c10::AutoFwGradMode with_tangents(true);
    for (const auto& generator : default_generators(inputs)) region->generators.emplace_back(generator);
    const auto outputs = region->forward(region->inputs.flow_of(inputs));
    std::erase_if(region->generators, [](const GeneratorState& state) { return !state.has_moved(); });
    for (const auto& state : region->generators) {
      TORCH_CHECK(
          !is_thread_rank() || !state.is_default_of_cpu(),
          "recompute: forward draws from the default generator, which this rank shares with other threads: draw "
          "from one of its own, and name it in the options");
    }
    region->outputs = Layout::of(outputs);
    return region->outputs.list_of(outputs);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["region"].toCapsule();
    const auto& region = static_cast<const Region&>(*capsule);
    auto inputs = context->get_saved_variables();
    std::vector<Tensor> by;
    std::vector<size_t> places;
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = alias_of(inputs[i]);
      if (!context->needs_input_grad(i)) continue;
      by.push_back(inputs[i].set_requires_grad(true));
      places.push_back(i);
    }
    for (size_t i = 0; i < region.trained.size(); ++i) {
      by.push_back(region.trained[i]);
      places.push_back(inputs.size() + i);
    }
    const auto outputs = again(region, inputs);
    std::vector<Tensor> of, along;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      of.push_back(outputs[i]);
      along.push_back(gradients[i]);
    }
    variable_list all(inputs.size() + region.trained.size() + 1);
    if (of.empty()) return all;
    check_leaves(of, by);
    const auto found =
        torch::autograd::grad(of, by, along, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < found.size(); ++i) all[places[i]] = found[i];
    return all;
  }

 private:
  /// The second call of forward.
  static variable_list again(const Region& region, const variable_list& inputs) {
    const ContextScope scope(holding(region.context));
    const GeneratorScope generators(region.generators);
    const AutocastScope autocast(region.autocast);
    const at::AutoGradMode with_gradients(true);
    const c10::AutoFwGradMode with_tangents(true);
    return region.outputs.list_of(region.forward(region.inputs.flow_of(inputs)));
  }

  /// The gradients of leaves that nobody has named would be lost.
  static void check_leaves(const std::vector<Tensor>& outputs, const std::vector<Tensor>& by) {
    const auto is_known = [&](const Tensor& leaf) {
      return std::ranges::any_of(by, [&](const Tensor& own) { return own.is_same(leaf); });
    };
    std::vector<torch::autograd::Node*> left;
    std::unordered_set<torch::autograd::Node*> seen;
    for (const auto& output : outputs) left.push_back(output.grad_fn().get());
    while (!left.empty()) {
      auto* const node = left.back();
      left.pop_back();
      if (node == nullptr || !seen.insert(node).second) continue;
      if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
        TORCH_CHECK(is_known(leaf->variable), "recompute: a parameter of ", leaf->variable.sizes(),
                    " is of no module that the options name, wanted all of them where tangents travel");
      }
      for (const auto& edge : node->next_edges()) left.push_back(edge.function.get());
    }
  }
};

}  // namespace

Flow recompute_with_tangents(const std::function<Flow(const Flow&)>& forward, const Flow& inputs,
                             const RecomputeOptions& options) {
  const auto region = c10::make_intrusive<Region>(forward, options, Layout::of(inputs));
  auto list = region->inputs.list_of(inputs);
  for (const auto& parameter : parameters_of({.name = {}, .modules = options.modules, .forward = {}})) {
    if (!parameter.requires_grad()) continue;
    region->trained.push_back(parameter);
    list.push_back(primal_of(parameter));
  }
  const auto outputs = RegionNode::apply(at::TensorList(list), region);
  return region->outputs.flow_of(outputs);
}

}  // namespace tandem::memory::detail
