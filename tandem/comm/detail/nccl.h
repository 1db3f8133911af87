#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

// Compiled with -DTANDEM_CUDA=ON; otherwise these do nothing and there is no CUDA tensor either.
namespace tandem::comm::detail {

/// Gives the calling process the GPU of its number among those of its host, when each rank there can have one.
void choose_gpu(int local_rank, int local_size);

/// CUDA tensors of this group travel by NCCL. Not when ranks share a GPU, which NCCL does not allow: such a group has
/// no backend for them. Connects with the first call.
void add_nccl(c10d::ProcessGroup& group, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout);

}  // namespace tandem::comm::detail
