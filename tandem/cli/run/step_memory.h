#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/job/step_memory.h"
#include "tandem/report/memory_curve.h"

// The memory of one training step, as results show it.
namespace tandem::cli {

/// One rank: {"categories", "peak_bytes", "predicted_peak_bytes", "activations_peak_bytes",
/// "predicted_activations_peak_bytes", "saved_bytes", "seconds", "recompute", "blocks", "timeline"}. The timeline is
/// thinned to at most about a thousand moments, but keeps the extremes.
nlohmann::json step_memory_json(const job::StepMemory& memory);

/// {"plan", "predicted_slowdown"}; the plan is "" if nothing is recomputed.
nlohmann::json recompute_json(const job::Recomputation& recomputation);

/// The curve in a result of `tandem memory`. Throws nlohmann's errors if there is none.
report::MemoryCurve curve_of(const nlohmann::json& result, const std::string& name);

}  // namespace tandem::cli
