#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/comm/wire_meter.h"
#include "tandem/memory/category.h"

namespace tandem::job {

/// Memory and communication of one rank.
struct RankFacts {
  memory::CategoryBytes at_peak{};
  int64_t head_bytes = 0;  // see head_bytes() in memory_probe.h
  std::map<std::string, comm::OperationCount> wire;
};

/// Returns every rank's facts on every rank. Collective; the facts do not include the messages of this call.
std::vector<RankFacts> gather_facts(const RankFacts& own, comm::ProcessGroup& group);

/// {"all_reduce": {"calls", "bytes", "phases": {"backward": {"calls", "bytes"}}, "to_ranks": [..]}}.
nlohmann::json wire_json(const std::map<std::string, comm::OperationCount>& wire);

}  // namespace tandem::job
