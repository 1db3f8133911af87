#include "tandem/cli/run_facts.h"

#include <ATen/ATen.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/base/table.h"
#include "tandem/comm/agree.h"
#include "tandem/memory/table.h"

namespace tandem::cli {
namespace {

nlohmann::json count_json(const comm::WireCount& count) { return {{"calls", count.calls}, {"bytes", count.bytes}}; }

nlohmann::json wire_json(const std::map<std::string, comm::OperationCount>& wire) {
  auto operations = nlohmann::json::object();
  for (const auto& [operation, count] : wire) {
    auto entry = count_json(count);
    for (size_t i = 0; i < count.phases.size(); ++i) {
      if (count.phases[i].calls > 0) entry["phases"][std::string(comm::kPhaseNames[i])] = count_json(count.phases[i]);
    }
    entry["to_ranks"] = count.to_rank;
    operations[operation] = entry;
  }
  return operations;
}

comm::WireCount count_of(const nlohmann::json& json) { return {json.at("calls"), json.at("bytes")}; }

std::map<std::string, comm::OperationCount> wire_of(const nlohmann::json& json) {
  std::map<std::string, comm::OperationCount> wire;
  for (const auto& [operation, entry] : json.items()) {
    auto& count = wire[operation];
    static_cast<comm::WireCount&>(count) = count_of(entry);
    for (size_t i = 0; i < count.phases.size(); ++i) {
      const std::string phase(comm::kPhaseNames[i]);
      if (entry.contains("phases") && entry["phases"].contains(phase))
        count.phases[i] = count_of(entry["phases"][phase]);
    }
    count.to_rank = entry.at("to_ranks").get<std::vector<int64_t>>();
  }
  return wire;
}

std::string pack(const RankFacts& facts) {
  return nlohmann::json{{"at_peak", facts.at_peak}, {"head_bytes", facts.head_bytes}, {"wire", wire_json(facts.wire)}}
      .dump();
}

RankFacts unpack(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  RankFacts facts;
  json.at("at_peak").get_to(facts.at_peak);
  json.at("head_bytes").get_to(facts.head_bytes);
  facts.wire = wire_of(json.at("wire"));
  return facts;
}

}  // namespace

std::vector<RankFacts> gather_facts(const RankFacts& own, comm::ProcessGroup& group) {
  std::vector<RankFacts> ranks;
  for (const auto& text : comm::gather_texts(pack(own), group)) ranks.push_back(unpack(text));
  return ranks;
}

nlohmann::json memory_json(const memory::CategoryBytes& bytes) {
  nlohmann::json categories;
  for (int i = 0; i < memory::kNumCategories; ++i) categories[std::string(memory::kCategoryNames[i])] = bytes[i];
  return {{"peak_bytes", memory::total_of(bytes)}, {"categories", categories}};
}

nlohmann::json memory_json(const std::vector<RankFacts>& ranks) {
  auto list = nlohmann::json::array();
  for (const auto& facts : ranks) {
    list.push_back(memory_json(facts.at_peak));
    list.back()["head_bytes"] = facts.head_bytes;
  }
  return {{"ranks", list}};
}

nlohmann::json wire_json(const std::vector<RankFacts>& ranks) {
  auto list = nlohmann::json::array();
  for (const auto& facts : ranks) list.push_back(wire_json(facts.wire));
  return {{"ranks", list}};
}

std::string memory_text(const std::vector<RankFacts>& ranks) {
  std::vector<memory::CategoryBytes> peaks;
  for (const auto& facts : ranks) peaks.push_back(facts.at_peak);
  return "memory   what each rank held at its peak\n" + memory::memory_table(peaks);
}

std::string wire_text(const std::vector<RankFacts>& ranks) {
  std::vector<std::string> head = {"operation", "calls", "bytes"};
  for (const auto phase : comm::kPhaseNames) head.emplace_back(phase);
  Table table(head);
  for (const auto& [operation, count] : ranks.at(0).wire) {
    std::vector<std::string> row = {operation, format_count(count.calls), format_bytes(count.bytes)};
    for (const auto& phase : count.phases) row.push_back(format_bytes(phase.bytes));
    table.add_row(row);
  }
  return ranks[0].wire.empty() ? "" : "wire     payload that rank 0 sent, over all steps and tests\n" + table.str();
}

}  // namespace tandem::cli
