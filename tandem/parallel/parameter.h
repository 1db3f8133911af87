#pragma once
#include <optional>
#include <string>

#include "tandem/base/tensor.h"

namespace tandem::parallel {

/// Rows first .. first + count - 1, of `total` rows, of a tensor that is split over the ranks.
struct RowRange {
  int64_t first = 0, count = 0, total = 0;

  bool operator==(const RowRange&) const = default;
};

/// A tensor that training changes, and how it is distributed: every rank holds all of it, or each rank holds its own
/// rows. Clipping and checkpoints depend on the distribution, so it is set when the parameter is made.
class Parameter {
 public:
  /// Every rank holds all of it.
  static Parameter replicated(std::string name, Tensor tensor);

  /// This rank holds `rows`. Throws c10::ValueError if `tensor` has another number of rows, or if `rows` lies outside
  /// 0..total-1.
  static Parameter split(std::string name, Tensor tensor, const RowRange& rows);

  /// Another tensor with the distribution of this one, such as its optimizer state.
  Parameter beside(std::string name, Tensor tensor) const;

  std::string name;
  Tensor tensor;
  std::optional<RowRange> rows;  // nullopt: replicated

 private:
  Parameter(std::string of_name, Tensor of_tensor, std::optional<RowRange> of_rows);
};

}  // namespace tandem::parallel
