#pragma once
#include <string>
#include <vector>

namespace tandem {

/// Plain text table: the first column is left-aligned, the others right-aligned, with two spaces between columns.
/// Cells are aligned by display_width(); their control characters, including line breaks, are escaped (printable()).
class Table {
 public:
  explicit Table(std::vector<std::string> header);

  /// Throws c10::ValueError if the number of cells differs from the header's.
  void add_row(std::vector<std::string> cells);

  std::string str() const;  // each line ends with a newline

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tandem
