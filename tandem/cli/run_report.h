#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "tandem/cli/memory_probe.h"
#include "tandem/cli/run_history.h"

namespace tandem::cli {

/// Writes report.html and memory.svg into the run's folder and returns the path of the former. `result`: what
/// result.json holds.
std::filesystem::path write_run_report(const std::filesystem::path& folder, const settings::Settings& settings,
                                       const nlohmann::json& result, const std::vector<FormMemory>& forms,
                                       const std::vector<RankFacts>& facts, const RunCurves& curves);

}  // namespace tandem::cli
