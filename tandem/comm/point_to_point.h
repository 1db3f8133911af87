#pragma once
#include "tandem/base/tensor.h"
#include "tandem/comm/handle.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {

/// A message from this rank to `to`, which calls recv(). Messages of the same sender, receiver and tag arrive in order.
///
/// Gives a scalar 0 that stands for the message in the graph: where x needs a gradient, backward through that scalar
/// waits for the receiver's gradient and hands it to x. Keep it, and call backward({it}) when the receiver does its
/// backward pass.
///
/// Between processes send waits until the receiver has begun to receive, so that two ranks that send to each other
/// first wait for ever (and are told after the timeout): use send_async. Thread-ranks never wait: the receiver gets a
/// copy, or, where x is given away (`send(std::move(x), ..)`, needs no gradient, nobody else holds its memory), x
/// itself.
///
/// Throws c10::IndexError for a rank that is not there or is this one, c10::DistBackendError as the collectives do.
Tensor send(const Tensor& x, int to, ProcessGroup& group, int tag = 0, flight::Where where = flight::Where::current());
Tensor send(Tensor&& x, int to, ProcessGroup& group, int tag = 0, flight::Where where = flight::Where::current());
Handle send_async(const Tensor& x, int to, ProcessGroup& group, int tag = 0,
                  flight::Where where = flight::Where::current());

/// The next message from `from`: shape, type and whether it needs a gradient are the sender's. Backward sends the
/// gradient back. Take backward(), not autograd::grad(): that one leaves out what does not lead to its inputs, and the
/// sender would wait (unless `anchor` is one of them).
///
/// `anchor`: for second derivatives, a scalar that needs a gradient; its gradient then is the scalar of the message
/// that backward sent.
Tensor recv(int from, ProcessGroup& group, int tag = 0, const Tensor& anchor = {},
            flight::Where where = flight::Where::current());

/// The same; the message is taken in wait().
Handle recv_async(int from, ProcessGroup& group, int tag = 0, flight::Where where = flight::Where::current());

}  // namespace tandem::comm
