#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/job/step_memory.h"
#include "tandem/report/memory_curve.h"

// The memory of one training step, as results show it.
namespace tandem::cli {

/// One rank: {"categories", "peak_bytes", "peak_block", "peak_phase", "gathered_bytes", "predicted_peak_bytes",
/// "activations_peak_bytes", "predicted_activations_peak_bytes", "saved_bytes", "seconds", "recompute", "blocks",
/// "timeline"}. The timeline is thinned to at most about a thousand moments, but keeps the extremes.
nlohmann::json step_memory_json(const job::StepMemory& memory);

/// The plan as a text; "" if it keeps all blocks plainly.
std::string plan_text(const memory::RecomputePlan& plan);

/// {"plan", "predicted_slowdown"}; the plan as plan_text().
nlohmann::json recompute_json(const job::Recomputation& recomputation);

/// Bytes of the parameters at a peak that are not this rank's own: those of blocks that are gathered meanwhile.
int64_t gathered_bytes(const CategoryBytes& at_peak, const CategoryBytes& between_steps);

/// " · 2.1 MiB of the parameters are gathered then"; "" for 0 bytes.
std::string gathered_text(int64_t gathered_bytes);

/// The curve in a result of `tandem memory`. Throws nlohmann's errors if there is none.
report::MemoryCurve curve_of(const nlohmann::json& result, const std::string& name);

}  // namespace tandem::cli
