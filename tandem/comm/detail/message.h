#pragma once
#include "tandem/comm/handle.h"
#include "tandem/comm/process_group.h"

// Messages without gradients. A message is a head of fixed size (type, shape, whether a gradient is wanted) and the
// numbers; between threads both travel as one tensor that changes hands.
namespace tandem::comm::detail {

struct Message {
  Tensor tensor;
  bool requires_grad = false;
};

/// The handle's tensor is not defined. A tensor that nobody else holds changes hands between threads; another is
/// copied.
Handle start_send(Message message, int to, int tag, ProcessGroup& group, flight::Where where);

Message receive(int from, int tag, ProcessGroup& group, flight::Where where);

}  // namespace tandem::comm::detail
