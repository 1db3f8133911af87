#pragma once
#include "tandem/memory/recompute.h"

namespace tandem::memory::detail {

/// recompute() of a region with tangents, which torch keeps with the values that operations save, whatever hooks do.
/// The region is one node of the graph: forward builds no graph, and backward builds that of the second call.
///
///   forward    inputs, their tangents ──▶ forward, no graph ──▶ outputs, their tangents
///   backward   inputs, their tangents ──▶ forward ──▶ its graph ──▶ gradients of inputs, tangents, parameters
///
/// Options other than `modules` and `generators` have no effect; `modules` must hold every parameter that requires a
/// gradient. Parameters have their tangents until backward has ended. Memory: the inputs and their tangents.
Flow recompute_with_tangents(const std::function<Flow(const Flow&)>& forward, const Flow& inputs,
                             const RecomputeOptions& options);

}  // namespace tandem::memory::detail
