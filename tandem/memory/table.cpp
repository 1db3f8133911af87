#include "tandem/memory/table.h"

#include "tandem/base/format.h"
#include "tandem/base/table.h"

namespace tandem::memory {

std::string memory_table(std::span<const CategoryBytes> ranks) {
  std::vector<std::string> header = {"rank"};
  header.insert(header.end(), kCategoryNames.begin(), kCategoryNames.end());
  header.emplace_back("peak");
  Table table(header);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<std::string> row = {std::to_string(rank)};
    for (const int64_t bytes : ranks[rank]) row.push_back(format_bytes(bytes));
    row.push_back(format_bytes(total_of(ranks[rank])));
    table.add_row(row);
  }
  return table.str();
}

}  // namespace tandem::memory
