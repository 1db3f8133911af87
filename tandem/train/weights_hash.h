#pragma once
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/parallel/parameter.h"

namespace tandem::train {

/// One hash of all `tensors`, merged over the ranks: equal bits give equal hashes, however the tensors are split.
///
/// It is the 128-bit XXH3, as 32 hex digits, of the tensors sorted by name, one after the other, each as
///   "<name> <type> <d0>,<d1>,...\n"   type as safetensors names it; a scalar has no dims
///   its bytes                         in C order
/// Rank 0's copy of a replicated tensor is hashed. The rows of split tensors must lie on the ranks in rank order; they
/// are sent to rank 0 in pieces. Memory on rank 0: one piece, 16 MiB or one row. Collective. Returns the hash on rank
/// 0, "" on the other ranks. Throws c10::TypeError for an element type that safetensors does not support.
std::string weights_hash(std::vector<parallel::Parameter> tensors, comm::ProcessGroup& group);

}  // namespace tandem::train
