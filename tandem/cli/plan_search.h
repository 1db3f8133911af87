#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "tandem/job/auto_plan.h"

namespace tandem::cli {

/// A table of the plans on the front, with the one that is chosen.
std::string plans_text(const job::SharedPlans& plans);

/// {"plans": [{"mesh", "schedule", "strategy", "micro_batches", "recompute", "head_over_all", "seconds", "peak_bytes",
/// "settings", "is_chosen"}], "lower_bound", "gap"}: the fastest first; the gap of the chosen one, 0: none.
nlohmann::json plans_json(const job::SharedPlans& plans);

/// The front as a figure: seconds of a step against bytes of the rank with the most.
std::string plans_figure(const job::SharedPlans& plans);

}  // namespace tandem::cli
