#include "tandem/cli/run_report.h"

#include <nlohmann/json.hpp>

namespace tandem::cli {

std::filesystem::path write_run_report(const std::filesystem::path& folder, const Settings& settings,
                                       const nlohmann::json& result, const std::vector<FormMemory>& forms,
                                       const std::vector<RankFacts>& facts, const RunObserver& observer) {
  return folder / "report.html";
}

}  // namespace tandem::cli
