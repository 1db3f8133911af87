#pragma once
#include "tandem/base/value_observer.h"
#include "tandem/comm/process_group.h"

namespace tandem::layers {

/// Returns `term`, and says that it is this rank's term of a sum over the group, which no operator can tell: what a
/// rank works out from its part of the channels and of a weight.
inline const Tensor& term_of(const Tensor& term, const comm::ProcessGroup& group) {
  if (auto* observer = value_observer()) observer->is_term(term, &group);
  return term;
}

}  // namespace tandem::layers
