#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/comm/detail/nccl.h"

namespace tandem::comm {

void detail::choose_gpu(int, int) {}
void detail::add_nccl(c10d::ProcessGroup&, c10::intrusive_ptr<c10d::Store>, std::chrono::milliseconds) {}

}  // namespace tandem::comm
