#pragma once
#include <vector>

#include "tandem/comm/process_group.h"

namespace tandem::parallel::detail {

/// Broadcasts the tensors of rank `root`, in messages of one type and of about 1 MiB; a larger tensor is one message.
/// Memory: a message. Collective.
void broadcast_all(const std::vector<Tensor>& tensors, int root, comm::ProcessGroup& group);

}  // namespace tandem::parallel::detail
