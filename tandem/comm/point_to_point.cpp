#include "tandem/comm/point_to_point.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tandem/base/context.h"
#include "tandem/comm/detail/message.h"

namespace tandem::comm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Route : torch::CustomClassHolder {
  Route(ProcessGroup& of_group, int of_peer, int of_tag, flight::Where of_where)
      : group(of_group), peer(of_peer), tag(of_tag), where(of_where) {}

  ProcessGroup& group;
  int peer, tag;
  flight::Where where;
};
using RoutePointer = c10::intrusive_ptr<Route>;

const Route& route_of(AutogradContext* context) {
  return static_cast<const Route&>(*context->saved_data["route"].toCapsule());
}

// Tags of the caller's messages. Gradients travel in the opposite direction with the tags above, and gradients of
// gradients above those, so that none of them matches another.
constexpr int kTags = 1 << 20, kLimit = 1 << 29;

int gradient_tag(int tag) { return tag + kTags; }

Tensor receive_in_graph(int from, ProcessGroup& group, int tag, const Tensor& anchor, flight::Where where);

/// The scalar that stands for a message in the graph of x.
struct SendNode : torch::autograd::Function<SendNode> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const RoutePointer& route) {
    context->saved_data["route"] = c10::IValue::make_capsule(route);
    return at::zeros({}, x.options());
  }
  static variable_list backward(AutogradContext* context, const variable_list&) {
    const PhaseScope phase(Phase::backward);
    const auto& route = route_of(context);
    return {receive_in_graph(route.peer, route.group, gradient_tag(route.tag), {}, route.where), {}};
  }
};

Tensor message_in_graph(const Tensor& x, bool requires_grad, ProcessGroup& group, int to, int tag,
                        flight::Where where) {
  if (!requires_grad) return at::zeros({}, x.options());
  return SendNode::apply(x, c10::make_intrusive<Route>(group, to, tag, where));
}

/// Waits for `handle` on a thread of the group. An error is only recorded, not thrown.
void finish_later(Handle handle, ProcessGroup& group) {
  group.queue([handle = std::make_shared<Handle>(std::move(handle))] {
    try {
      handle->wait();
    } catch (const std::exception&) {
      // The flight record has it. The rank that waits for this message fails too, and reports the error.
    }
  });
}

/// Adds a received tensor to the graph, as a function of `anchor`.
struct RecvNode : torch::autograd::Function<RecvNode> {
  static Tensor forward(AutogradContext* context, const Tensor&, const Tensor* received, const RoutePointer& route) {
    context->saved_data["route"] = c10::IValue::make_capsule(route);
    return *received;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const PhaseScope phase(Phase::backward);
    const auto& route = route_of(context);
    const auto& g = gradients[0];
    const bool requires_grad = at::GradMode::is_enabled() && g.requires_grad();
    const int tag = gradient_tag(route.tag);
    // Do not wait here: in a ring, all ranks come to this place before any of them receives.
    finish_later(detail::start_send({g.detach(), requires_grad}, route.peer, tag, route.group, route.where),
                 route.group);
    return {message_in_graph(g, requires_grad, route.group, route.peer, tag, route.where), {}, {}};
  }
};

void check_peer(int peer, const ProcessGroup& group, const char* operation, int tag) {
  TORCH_CHECK_INDEX(peer >= 0 && peer < group.size(), operation, ": rank is ", peer, ", wanted 0..", group.size() - 1);
  TORCH_CHECK_INDEX(peer != group.rank(), operation, ": rank is ", peer, ", which is this one, wanted another");
  TORCH_CHECK_VALUE(tag >= 0 && tag < kTags, operation, ": tag is ", tag, ", wanted 0..", kTags - 1);
}

Tensor receive_in_graph(int from, ProcessGroup& group, int tag, const Tensor& anchor, flight::Where where) {
  TORCH_CHECK_VALUE(tag < kLimit, "recv: gradients of so high an order are not supported");
  const auto message = detail::receive(from, tag, group, where);
  if (!message.requires_grad || !at::GradMode::is_enabled()) return message.tensor;
  const auto hook = anchor.defined() ? anchor : at::zeros({}, message.tensor.options()).requires_grad_();
  return RecvNode::apply(hook, &message.tensor, c10::make_intrusive<Route>(group, from, tag, where));
}

}  // namespace

Handle send_async(const Tensor& x, int to, ProcessGroup& group, int tag, flight::Where where) {
  check_peer(to, group, "send", tag);
  const bool requires_grad = at::GradMode::is_enabled() && x.requires_grad();
  auto begun = detail::start_send({x.detach(), requires_grad}, to, tag, group, where);
  // Make this node here, not in wait(): backward runs the newest node first, so a rank that starts to send before it
  // receives will send its gradient before it waits for one.
  const auto message = message_in_graph(x, requires_grad, group, to, tag, where);
  return Handle([message, begun = std::make_shared<Handle>(std::move(begun))] {
    begun->wait();
    return message;
  });
}

Tensor send(const Tensor& x, int to, ProcessGroup& group, int tag, flight::Where where) {
  return send_async(x, to, group, tag, where).wait();
}

Tensor send(Tensor&& x, int to, ProcessGroup& group, int tag, flight::Where where) {
  if (x.requires_grad()) return send(static_cast<const Tensor&>(x), to, group, tag, where);
  check_peer(to, group, "send", tag);
  const auto options = x.options();
  detail::start_send({std::move(x), false}, to, tag, group, where).wait();
  return at::zeros({}, options);
}

Tensor recv(int from, ProcessGroup& group, int tag, const Tensor& anchor, flight::Where where) {
  check_peer(from, group, "recv", tag);
  return receive_in_graph(from, group, tag, anchor, where);
}

Handle recv_async(int from, ProcessGroup& group, int tag, flight::Where where) {
  return Handle([=, &group] { return recv(from, group, tag, {}, where); });
}

Handle send_message(Message message, int to, ProcessGroup& group, int tag, flight::Where where) {
  check_peer(to, group, "send", tag);
  return detail::start_send(std::move(message), to, tag, group, where);
}

Message receive_message(int from, ProcessGroup& group, int tag, flight::Where where) {
  check_peer(from, group, "recv", tag);
  return detail::receive(from, tag, group, where);
}

}  // namespace tandem::comm
