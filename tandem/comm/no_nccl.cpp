#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/comm/nccl.h"

namespace tandem::comm {

void choose_gpu(int, int) {}
void add_nccl(c10d::ProcessGroup&, c10::intrusive_ptr<c10d::Store>, std::chrono::milliseconds) {}

}  // namespace tandem::comm
