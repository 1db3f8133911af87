#pragma once
#include <functional>

#include "tandem/base/tensor.h"

namespace tandem {

/// Some rows of a matrix: begin, begin + 1, ... begin + count - 1, or where `ids` is defined, those.
struct Rows {
  int64_t begin = 0, count = 0;
  Tensor ids = {};  // [count] int64, no id twice

  /// The rows themselves: a view where they lie together, else a copy.
  Tensor of(const Tensor& matrix) const;

  /// Writes back what of() gave and somebody changed; nothing to do where that was a view.
  void put_back(const Tensor& matrix, const Tensor& changed) const;
};

/// Takes the gradient of some rows. The gradient is a buffer that the giver may use again. Several threads may call it
/// at a time, with different rows.
using RowUpdate = std::function<void(const Rows& rows, const Tensor& gradient)>;

/// Told of rows before they are read.
using RowsRead = std::function<void(const Rows& rows)>;

}  // namespace tandem
