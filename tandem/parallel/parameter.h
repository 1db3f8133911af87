#pragma once
#include <optional>
#include <string>

#include "tandem/base/tensor.h"

namespace tandem::parallel {

/// Rows of a tensor that is split over the ranks: `first`, first + 1, ... first + count - 1 of `total`.
struct RowRange {
  int64_t first = 0, count = 0, total = 0;

  bool operator==(const RowRange&) const = default;
};

/// A tensor that training changes, and where it lies: every rank holds the same, or each its own rows of it. Clipping,
/// checkpoints and whatever else looks at all ranks goes by that, so that it is said when a parameter is made.
class Parameter {
 public:
  /// Every rank holds all of it.
  static Parameter replicated(std::string name, Tensor tensor);

  /// This rank holds `rows`. Throws c10::ValueError when they are not as many as the tensor's, or not within the total.
  static Parameter split(std::string name, Tensor tensor, const RowRange& rows);

  /// Another tensor that lies as this one does: the optimizer's state of it.
  Parameter beside(std::string name, Tensor tensor) const;

  std::string name;
  Tensor tensor;
  std::optional<RowRange> rows;  // nothing: replicated

 private:
  Parameter(std::string of_name, Tensor of_tensor, std::optional<RowRange> of_rows);
};

}  // namespace tandem::parallel
