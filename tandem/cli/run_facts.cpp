#include "tandem/cli/run_facts.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tandem/base/bytes.h"
#include "tandem/base/table.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/table.h"

namespace tandem::cli {
namespace {

constexpr std::array kOperations = {"all_gather", "all_reduce",     "barrier", "broadcast",
                                    "gather",     "reduce_scatter", "scatter"};
constexpr int64_t kNumbers = memory::kNumCategories + 1 + 2 * static_cast<int64_t>(kOperations.size());

std::vector<int64_t> pack(const RankFacts& facts) {
  std::vector<int64_t> numbers(facts.at_peak.begin(), facts.at_peak.end());
  numbers.push_back(facts.head_bytes);
  for (const auto* operation : kOperations) {
    const auto found = facts.wire.find(operation);
    const auto count = found == facts.wire.end() ? comm::WireCount{} : found->second;
    numbers.push_back(count.calls);
    numbers.push_back(count.bytes);
  }
  return numbers;
}

RankFacts unpack(const int64_t* numbers) {
  RankFacts facts;
  std::copy_n(numbers, memory::kNumCategories, facts.at_peak.begin());
  facts.head_bytes = numbers[memory::kNumCategories];
  numbers += memory::kNumCategories + 1;
  for (const auto* operation : kOperations) {
    if (numbers[0] > 0) facts.wire[operation] = {numbers[0], numbers[1]};
    numbers += 2;
  }
  return facts;
}

int64_t peak_of(const RankFacts& facts) {
  return std::accumulate(facts.at_peak.begin(), facts.at_peak.end(), int64_t{0});
}

}  // namespace

std::vector<RankFacts> gather_facts(const RankFacts& own, comm::ProcessGroup& group) {
  const auto numbers = at::tensor(pack(own), at::kLong).unsqueeze(0);
  const auto all = comm::all_gather(numbers, group, 0, std::vector<int64_t>(group.size(), 1));
  std::vector<RankFacts> ranks;
  for (int rank = 0; rank < group.size(); ++rank)
    ranks.push_back(unpack(all.const_data_ptr<int64_t>() + rank * kNumbers));
  return ranks;
}

nlohmann::json memory_json(const std::vector<RankFacts>& ranks) {
  auto list = nlohmann::json::array();
  for (const auto& facts : ranks) {
    nlohmann::json categories;
    for (int i = 0; i < memory::kNumCategories; ++i)
      categories[std::string(memory::kCategoryNames[i])] = facts.at_peak[i];
    list.push_back({{"peak_bytes", peak_of(facts)}, {"categories", categories}, {"head_bytes", facts.head_bytes}});
  }
  return {{"ranks", list}};
}

nlohmann::json wire_json(const std::vector<RankFacts>& ranks) {
  auto list = nlohmann::json::array();
  for (const auto& facts : ranks) {
    nlohmann::json operations = nlohmann::json::object();
    for (const auto& [operation, count] : facts.wire) {
      operations[operation] = {{"calls", count.calls}, {"bytes", count.bytes}};
    }
    list.push_back(operations);
  }
  return {{"ranks", list}};
}

std::string memory_text(const std::vector<RankFacts>& ranks) {
  std::vector<memory::CategoryBytes> peaks;
  for (const auto& facts : ranks) peaks.push_back(facts.at_peak);
  return memory::memory_table(peaks);
}

std::string wire_text(const std::vector<RankFacts>& ranks) {
  Table table({"sent by rank 0", "calls", "bytes"});
  for (const auto& [operation, count] : ranks.at(0).wire) {
    table.add_row({operation, format_count(count.calls), format_bytes(count.bytes)});
  }
  return ranks[0].wire.empty() ? "" : table.str();
}

}  // namespace tandem::cli
