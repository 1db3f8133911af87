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

/// Makes a GPU the calling thread's current device: GPU `local_rank` if this host has one for each of its `local_size`
/// ranks, else ranks share the GPUs in turn.
void choose_gpu(int local_rank, int local_size);

/// Gives `group` an NCCL backend for CUDA tensors. If ranks of this host share a GPU, which NCCL does not support, the
/// group stays as it is. NCCL connects in the first call.
void add_nccl(c10d::ProcessGroup& group, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout);

}  // namespace tandem::comm::detail
