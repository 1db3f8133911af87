#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

// NCCL for CUDA tensors, compiled with -DTANDEM_CUDA=ON. In other builds these functions do nothing, and there are no
// CUDA tensors.
namespace tandem::comm::detail {

/// Makes GPU `local_rank` the current device of this process, if this host has a GPU for each of its `local_size`
/// ranks.
void choose_gpu(int local_rank, int local_size);

/// Adds an NCCL backend for CUDA tensors to `group`. If ranks share a GPU, which NCCL does not support, nothing is
/// added, and the group does not support CUDA tensors. NCCL connects in the first call.
void add_nccl(c10d::ProcessGroup& group, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout);

}  // namespace tandem::comm::detail
