#include "tandem/parallel/detail/broadcast_all.h"

#include "tandem/comm/collectives.h"
#include "tandem/parallel/detail/messages.h"

namespace tandem::parallel::detail {

void broadcast_all(const std::vector<Tensor>& tensors, int root, comm::ProcessGroup& group) {
  if (group.size() == 1) return;
  for_each_message(tensors, [&](const Tensor& message) { comm::broadcast_(message, root, group); });
}

}  // namespace tandem::parallel::detail
