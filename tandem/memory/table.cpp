#include "tandem/memory/table.h"

#include "tandem/base/format.h"
#include "tandem/base/table.h"

namespace tandem::memory {

namespace {

Table table_of(const std::string& first, const std::string& last) {
  std::vector<std::string> header = {first};
  header.insert(header.end(), kCategoryNames.begin(), kCategoryNames.end());
  header.push_back(last);
  return Table(header);
}

std::vector<std::string> row_of(const std::string& name, const CategoryBytes& categories) {
  std::vector<std::string> row = {name};
  for (const int64_t bytes : categories) row.push_back(format_bytes(bytes));
  row.push_back(format_bytes(total_of(categories)));
  return row;
}

}  // namespace

std::string memory_table(std::span<const CategoryBytes> ranks) {
  auto table = table_of("rank", "peak");
  for (size_t rank = 0; rank < ranks.size(); ++rank) table.add_row(row_of(std::to_string(rank), ranks[rank]));
  return table.str();
}

std::string block_table(const Account& account) {
  auto table = table_of("block", "all");
  for (const auto& [block, live, at_peak] : account.blocks) {
    const auto name = block_name(block);
    table.add_row(row_of(name.empty() ? "-" : name, live));
  }
  table.add_row(row_of("all", account.live));
  return table.str();
}

}  // namespace tandem::memory
