#pragma once
#include "tandem/base/tensor.h"
#include "tandem/comm/handle.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {

/// Sends x to rank `to`, which must call recv(). Messages with the same sender, receiver and tag arrive in order.
///
/// Returns a scalar 0 that stands for the message in the graph: if x requires a gradient, backward through this scalar
/// waits for the receiver's gradient and passes it to x. Keep the scalar, and call backward({scalar}) when the receiver
/// runs its backward pass.
///
/// Between processes, send() waits until the receiver receives. Two ranks that both send first therefore
/// wait until the timeout, and throw: use send_async(). Thread-ranks never wait: the receiver gets a copy, or x itself
/// if x is moved (`send(std::move(x), ..)`), requires no gradient, and nobody else references its memory.
///
/// Throws c10::IndexError if `to` is out of range or this rank, c10::ValueError for a tag outside 0..2^20-1, and
/// c10::DistBackendError as the collectives do.
Tensor send(const Tensor& x, int to, ProcessGroup& group, int tag = 0, flight::Where where = flight::Where::current());
Tensor send(Tensor&& x, int to, ProcessGroup& group, int tag = 0, flight::Where where = flight::Where::current());
Handle send_async(const Tensor& x, int to, ProcessGroup& group, int tag = 0,
                  flight::Where where = flight::Where::current());

/// Receives the next message from rank `from`. Shape, type, requires_grad and, of four dims, channels last are the
/// sender's. Backward sends the
/// gradient back to the sender. Use backward(), not autograd::grad(): grad() skips nodes that do not lead to its
/// inputs, and the sender would wait, unless `anchor` is one of the inputs.
///
/// `anchor`: for second derivatives, a scalar that requires a gradient. Its gradient is then the scalar of the message
/// that backward sent.
Tensor recv(int from, ProcessGroup& group, int tag = 0, const Tensor& anchor = {},
            flight::Where where = flight::Where::current());

/// The same, but the message is received in wait(): the group must outlive the handle.
Handle recv_async(int from, ProcessGroup& group, int tag = 0, flight::Where where = flight::Where::current());

/// A tensor that is sent outside any graph, and whether it required a gradient at its sender.
struct Message {
  Tensor tensor;
  bool requires_grad = false;
};

/// Sends it to rank `to`, which must call receive_message(), without waiting; wait() of the handle returns an undefined
/// tensor. As send() otherwise: between threads, a tensor that nobody else references is handed over.
Handle send_message(Message message, int to, ProcessGroup& group, int tag = 0,
                    flight::Where where = flight::Where::current());
Message receive_message(int from, ProcessGroup& group, int tag = 0, flight::Where where = flight::Where::current());

}  // namespace tandem::comm
