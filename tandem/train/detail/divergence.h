#pragma once
#include <optional>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/train/parameter.h"

namespace tandem::train::detail {

/// A tensor of a list that holds an infinity or a NaN.
struct NonFinite {
  int64_t place = 0;  // in the list
  int rank = 0;       // the lowest that holds it
};

/// Place of the first of these tensors that is not finite on this rank. Not collective.
std::optional<int64_t> first_nonfinite(const std::vector<Parameter>& tensors);

/// Place of the first gradient that is not finite on this rank; a parameter without a gradient passes. Not collective.
std::optional<int64_t> first_nonfinite_gradient(const std::vector<Parameter>& parameters);

/// What the ranks tell each other at the end of a step.
struct StepVote {
  bool stop = false;
  std::optional<NonFinite> fault;
};

/// One rank's yes is everybody's, and so is the first fault of all. Collective: one message of 8 bytes.
StepVote agree(bool stop, std::optional<int64_t> own_fault, comm::ProcessGroup& group);

}  // namespace tandem::train::detail
