#pragma once
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/parallel/parameter.h"

namespace tandem::train {

/// One hash of all `tensors`, merged whole: equal bits give equal hashes, however the tensors are split over the ranks.
///
/// It is the 128-bit XXH3, as 32 hex digits, of the tensors sorted by name, one after the other, each as
///   "<name> <type> <d0>,<d1>,...\n"   type as safetensors names it; a scalar has no dims
///   its bytes                         in C order
/// Rank 0's copy of a replicated tensor counts. The rows of split tensors lie on the ranks in rank order, and travel to
/// rank 0 in pieces. Memory there: a piece, 16 MiB or one row. Collective; the result is rank 0's, "" elsewhere.
/// Throws c10::TypeError for an element type that safetensors does not have.
std::string weights_hash(std::vector<parallel::Parameter> tensors, comm::ProcessGroup& group);

}  // namespace tandem::train
