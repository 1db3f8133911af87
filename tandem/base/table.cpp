#include "tandem/base/table.h"

#include <c10/util/Exception.h>

#include "tandem/base/quote.h"
#include "tandem/base/terminal.h"

namespace tandem {

namespace {

std::vector<std::string> printable_cells(std::vector<std::string> cells) {
  for (auto& cell : cells) cell = printable(cell);
  return cells;
}

}  // namespace

Table::Table(std::vector<std::string> header) { rows_.push_back(printable_cells(std::move(header))); }

void Table::add_row(std::vector<std::string> cells) {
  TORCH_CHECK_VALUE(cells.size() == rows_[0].size(), "table: row has ", cells.size(), " cells, wanted ",
                    rows_[0].size());
  rows_.push_back(printable_cells(std::move(cells)));
}

std::string Table::str() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - display_width(row[i]), ' ');
      if (i > 0) text += "  ";
      text += i == 0 ? row[i] + padding : padding + row[i];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace tandem
