#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/category.h"
#include "tandem/comm/process_group.h"
#include "tandem/comm/wire_meter.h"
#include "tandem/memory/device_memory.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/rehearsal.h"

namespace tandem::job {

/// Memory and communication of one rank.
struct RankFacts {
  CategoryBytes at_peak{};                            // of the host
  std::optional<memory::DeviceBytes> device;          // of the device, which has its own memory
  CategoryBytes train_at_peak{};                      // of training steps alone
  std::map<std::string, CategoryBytes> train_blocks;  // the same by block of the model; "": of no block
  int64_t train_predicted_peak = 0;                   // bytes, before the first step
  int64_t head_bytes = 0;                             // see head_bytes() in form_memory.h
  std::map<std::string, comm::OperationCount> wire;
};

/// Takes the training steps' memory from Outcome::memory and from RankPlan::own.
void set_training(RankFacts& facts, const memory::Account& measured, const memory::Composition& predicted);

/// Returns every rank's facts on every rank. Collective; the facts do not include the messages of this call.
std::vector<RankFacts> gather_facts(const RankFacts& own, comm::ProcessGroup& group);

/// {"all_reduce": {"calls", "bytes", "phases": {"backward": {"calls", "bytes"}}, "to_ranks": [..]}}.
nlohmann::json wire_json(const std::map<std::string, comm::OperationCount>& wire);

}  // namespace tandem::job
