#pragma once
#include <string>
#include <vector>

namespace tandem {

/// Plain text table: first column left, the others right, two spaces between.
class Table {
 public:
  explicit Table(std::vector<std::string> header);

  /// Throws c10::ValueError when the number of cells is not the header's.
  void add_row(std::vector<std::string> cells);

  std::string str() const;  // each line ends with a newline

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tandem
