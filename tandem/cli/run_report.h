#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "tandem/cli/memory_probe.h"
#include "tandem/cli/run_observer.h"

namespace tandem::cli {

/// Writes report.html into the run's folder and returns its path.
std::filesystem::path write_run_report(const std::filesystem::path& folder, const Settings& settings,
                                       const nlohmann::json& result, const std::vector<FormMemory>& forms,
                                       const std::vector<RankFacts>& facts, const RunObserver& observer);

}  // namespace tandem::cli
