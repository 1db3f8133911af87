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
/// The ranks first tell each other which parts they hold; names may differ between ranks, and each part is hashed once,
/// from the rank whose copy counts. `group`: all ranks of the job. Parts are sent to rank 0 in pieces of 16 MiB, or of
/// one row along dim 0; what only rank 0 holds is not sent. Memory on rank 0: two pieces. Collective. Returns the hash
/// on rank 0, "" on the other ranks. Throws c10::TypeError for an element type that safetensors does not support, and
/// c10::ValueError, on all ranks, if the parts of a tensor differ in type or sizes or do not hold each element exactly
/// once.
std::string weights_hash(const std::vector<parallel::Parameter>& tensors, comm::ProcessGroup& group);

}  // namespace tandem::train
