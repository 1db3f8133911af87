#include "tandem/cli/run/ranks.h"

#include <nlohmann/json.hpp>

#include "tandem/base/context.h"
#include "tandem/base/format.h"
#include "tandem/base/table.h"
#include "tandem/memory/table.h"

namespace tandem::cli {

nlohmann::json memory_json(const CategoryBytes& bytes) {
  nlohmann::json categories;
  for (int i = 0; i < kNumCategories; ++i) categories[std::string(kCategoryNames[i])] = bytes[i];
  return {{"peak_bytes", total_of(bytes)}, {"categories", categories}};
}

namespace {

nlohmann::json training_json(const job::RankFacts& facts) {
  auto json = memory_json(facts.train_at_peak);
  json["predicted_peak_bytes"] = facts.train_predicted_peak;
  json["blocks"] = nlohmann::json::object();
  for (const auto& [name, bytes] : facts.train_blocks) json["blocks"][name] = memory_json(bytes)["categories"];
  return json;
}

}  // namespace

nlohmann::json memory_json(const std::vector<job::RankFacts>& ranks) {
  auto list = nlohmann::json::array();
  for (const auto& facts : ranks) {
    list.push_back(memory_json(facts.at_peak));
    list.back()["head_bytes"] = facts.head_bytes;
    if (facts.device) {
      list.back()["device"] = {{"live_bytes", facts.device->live}, {"peak_bytes", facts.device->peak}};
    }
    if (total_of(facts.train_at_peak) > 0) list.back()["train"] = training_json(facts);
  }
  return {{"ranks", list}};
}

nlohmann::json wire_json(const std::vector<job::RankFacts>& ranks) {
  auto list = nlohmann::json::array();
  for (const auto& facts : ranks) list.push_back(job::wire_json(facts.wire));
  return {{"ranks", list}};
}

std::string memory_text(const std::vector<job::RankFacts>& ranks) {
  std::vector<CategoryBytes> peaks;
  for (const auto& facts : ranks) peaks.push_back(facts.at_peak);
  return "memory   what each rank held at its peak\n" + memory::memory_table(peaks);
}

std::string wire_text(const std::vector<job::RankFacts>& ranks) {
  std::vector<std::string> head = {"operation", "calls", "bytes"};
  for (const auto phase : kPhaseNames) head.emplace_back(phase);
  Table table(head);
  for (const auto& [operation, count] : ranks.at(0).wire) {
    std::vector<std::string> row = {operation, format_count(count.calls), format_bytes(count.bytes)};
    for (const auto& phase : count.phases) row.push_back(format_bytes(phase.bytes));
    table.add_row(row);
  }
  return ranks[0].wire.empty() ? "" : "wire     payload that rank 0 sent, over all steps and tests\n" + table.str();
}

}  // namespace tandem::cli
