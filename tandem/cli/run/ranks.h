#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/job/rank_facts.h"

// Memory and communication of the ranks, as results show them.
namespace tandem::cli {

nlohmann::json memory_json(const CategoryBytes& bytes);                // {"peak_bytes", "categories"}
nlohmann::json memory_json(const std::vector<job::RankFacts>& ranks);  // {"ranks": [{"peak_bytes", "categories", ..}]}
nlohmann::json wire_json(const std::vector<job::RankFacts>& ranks);    // {"ranks": [{"all_reduce": {"calls", ..}}]}

std::string memory_text(const std::vector<job::RankFacts>& ranks);
std::string wire_text(const std::vector<job::RankFacts>& ranks);

}  // namespace tandem::cli
