#pragma once
#include "tandem/comm/handle.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/process_group.h"

// Messages without their gradients. Between processes a message is a header of fixed size (type, shape, order of
// memory, requires_grad), followed by the data: on one host through memory that both map. Between threads the tensor
// itself is handed over.
namespace tandem::comm::detail {

/// Starts to send; wait() of the handle returns an undefined tensor. Between threads, a tensor that nobody else
/// references is handed over, any other is copied.
Handle start_send(Message message, int to, int tag, ProcessGroup& group, flight::Where where);

Message receive(int from, int tag, ProcessGroup& group, flight::Where where);

}  // namespace tandem::comm::detail
