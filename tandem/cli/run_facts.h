#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/memory/category.h"

namespace tandem::cli {

/// What one rank used.
struct RankFacts {
  memory::CategoryBytes at_peak{};
  int64_t head_bytes = 0;
  std::map<std::string, comm::OperationCount> wire;
};

/// Every rank's facts, on every rank. Collective; its own messages are not counted.
std::vector<RankFacts> gather_facts(const RankFacts& own, comm::ProcessGroup& group);

nlohmann::json memory_json(const memory::CategoryBytes& bytes);   // {"peak_bytes", "categories"}
nlohmann::json memory_json(const std::vector<RankFacts>& ranks);  // {"ranks": [{"peak_bytes", "categories", ...}]}
nlohmann::json wire_json(const std::vector<RankFacts>& ranks);    // {"ranks": [{"all_reduce": {"calls", "bytes", ..}}]}

std::string memory_text(const std::vector<RankFacts>& ranks);
std::string wire_text(const std::vector<RankFacts>& ranks);

}  // namespace tandem::cli
