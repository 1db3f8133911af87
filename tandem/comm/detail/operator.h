#pragma once
#include <torch/csrc/autograd/custom_function.h>

#include "tandem/base/context.h"
#include "tandem/comm/detail/transfer.h"

// Turns an operator into a node of the autograd graph. `Op` has
//   begin(x, plan, caller)    -> Handle   starts the operator without its gradient
//   gradient(plan, g, saved)  -> Tensor   the adjoint, made of operators
//   save(x, plan, result)     -> what gradient() needs besides the plan
namespace tandem::comm::detail {

/// All that an operator keeps between forward and backward.
struct Plan : torch::CustomClassHolder {
  Plan(ProcessGroup& of_group, flight::Where of_where) : group(of_group), where(of_where) {}

  ProcessGroup& group;
  flight::Where where;
  int root = 0;
  Reduce op = Reduce::sum;
  int64_t dim = 0, other_dim = 0;
  Sizes sizes, received;
  Sizes shape;  // of the input
};
using PlanPointer = c10::intrusive_ptr<Plan>;

template <class Op>
struct Operator : torch::autograd::Function<Operator<Op>> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const PlanPointer& plan,
                        Handle* begun) {
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    auto result = begun->wait();
    context->save_for_backward(Op::save(x, *plan, result));
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const PhaseScope phase(Phase::backward);
    const auto capsule = context->saved_data["plan"].toCapsule();
    const auto& plan = static_cast<const Plan&>(*capsule);
    return {Op::gradient(plan, gradients[0], context->get_saved_variables()), {}, {}};
  }
};

template <class Op>
Handle begin(const Tensor& x, PlanPointer plan, bool later) {
  const bool requires_grad = at::GradMode::is_enabled() && x.requires_grad();
  const Caller caller{plan->group, plan->where, later, requires_grad, plan->dim};
  auto begun = Op::begin(x.detach(), *plan, caller);
  if (!requires_grad) return begun;
  return Handle([x, plan = std::move(plan), begun = std::make_shared<Handle>(std::move(begun))] {
    return Operator<Op>::apply(x, plan, begun.get());
  });
}

}  // namespace tandem::comm::detail
