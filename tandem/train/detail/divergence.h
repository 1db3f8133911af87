#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/process_group.h"
#include "tandem/train/parameter.h"

namespace tandem::train::detail {

/// A tensor of a list that holds an infinity or a NaN.
struct NonFinite {
  int64_t place = 0;  // index in the list of the rank
  int rank = 0;       // the lowest rank that holds it
};

/// Index of the first tensor that is not finite on this rank, or nullopt. Not collective.
std::optional<int64_t> first_nonfinite(const std::vector<Parameter>& tensors);

/// "<which><step> is not a number, wanted a finite number". `step` counts from 1.
NonFiniteError loss_fault(const std::string& which, int64_t step, double value);

/// `tensors`: those in which `found` was looked for; ranks that hold other parts list others. The same error on all
/// ranks, which names the rank at fault unless all ranks hold the whole tensor. Collective.
NonFiniteError gradient_fault(const std::vector<Parameter>& tensors, const NonFinite& found, int64_t step,
                              comm::ProcessGroup& group);
NonFiniteError state_fault(const std::vector<Parameter>& tensors, const NonFinite& found, int64_t step,
                           comm::ProcessGroup& group);

/// What the ranks agree on at the end of a step.
struct StepVote {
  bool stop = false;
  std::optional<NonFinite> fault;
};

/// Returns the same vote on all ranks: stop if any rank passes true, and the first fault of all ranks. Collective: one
/// message of 8 bytes.
StepVote agree(bool stop, std::optional<int64_t> own_fault, comm::ProcessGroup& group);

}  // namespace tandem::train::detail
