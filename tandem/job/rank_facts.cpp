#include "tandem/job/rank_facts.h"

#include <ATen/ATen.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tandem/base/context.h"
#include "tandem/comm/agree.h"

namespace tandem::job {
namespace {

nlohmann::json count_json(const comm::WireCount& count) { return {{"calls", count.calls}, {"bytes", count.bytes}}; }

comm::WireCount count_of(const nlohmann::json& json) { return {json.at("calls"), json.at("bytes")}; }

std::map<std::string, comm::OperationCount> wire_of(const nlohmann::json& json) {
  std::map<std::string, comm::OperationCount> wire;
  for (const auto& [operation, entry] : json.items()) {
    auto& count = wire[operation];
    static_cast<comm::WireCount&>(count) = count_of(entry);
    for (size_t i = 0; i < count.phases.size(); ++i) {
      const std::string phase(kPhaseNames[i]);
      if (entry.contains("phases") && entry["phases"].contains(phase))
        count.phases[i] = count_of(entry["phases"][phase]);
    }
    count.to_rank = entry.at("to_ranks").get<std::vector<int64_t>>();
  }
  return wire;
}

std::string pack(const RankFacts& facts) {
  nlohmann::json json = {{"at_peak", facts.at_peak},           {"train_at_peak", facts.train_at_peak},
                         {"train_blocks", facts.train_blocks}, {"train_predicted_peak", facts.train_predicted_peak},
                         {"head_bytes", facts.head_bytes},     {"wire", wire_json(facts.wire)}};
  if (facts.device) json["device"] = {facts.device->live, facts.device->peak};
  return json.dump();
}

RankFacts unpack(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  RankFacts facts;
  json.at("at_peak").get_to(facts.at_peak);
  json.at("train_at_peak").get_to(facts.train_at_peak);
  json.at("train_blocks").get_to(facts.train_blocks);
  json.at("train_predicted_peak").get_to(facts.train_predicted_peak);
  json.at("head_bytes").get_to(facts.head_bytes);
  if (json.contains("device")) facts.device = {json["device"].at(0), json["device"].at(1)};
  facts.wire = wire_of(json.at("wire"));
  return facts;
}

}  // namespace

nlohmann::json wire_json(const std::map<std::string, comm::OperationCount>& wire) {
  auto operations = nlohmann::json::object();
  for (const auto& [operation, count] : wire) {
    auto entry = count_json(count);
    for (size_t i = 0; i < count.phases.size(); ++i) {
      if (count.phases[i].calls > 0) entry["phases"][std::string(kPhaseNames[i])] = count_json(count.phases[i]);
    }
    entry["to_ranks"] = count.to_rank;
    operations[operation] = entry;
  }
  return operations;
}

void set_training(RankFacts& facts, const memory::Account& measured, const memory::Composition& predicted) {
  facts.train_predicted_peak = predicted.account.peak_bytes();
  facts.train_at_peak = measured.at_peak;
  for (const auto& bytes : measured.blocks) {
    if (total_of(bytes.at_peak) > 0) facts.train_blocks[block_name(bytes.block)] = bytes.at_peak;
  }
}

std::vector<RankFacts> gather_facts(const RankFacts& own, comm::ProcessGroup& group) {
  std::vector<RankFacts> ranks;
  for (const auto& text : comm::gather_texts(pack(own), group)) ranks.push_back(unpack(text));
  return ranks;
}

}  // namespace tandem::job
