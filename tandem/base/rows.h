#pragma once
#include <functional>

#include "tandem/base/tensor.h"

namespace tandem {

/// Some rows of a matrix: rows `ids` if `ids` is defined, else rows begin .. begin + count - 1.
struct Rows {
  int64_t begin = 0, count = 0;
  Tensor ids = {};  // [count] int64, no id twice

  /// The rows of `matrix`: a copy if `ids` is defined, else a view.
  Tensor of(const Tensor& matrix) const;

  /// Writes `changed`, a modified result of of(), back into `matrix`. Does nothing if of() returned a view.
  void put_back(const Tensor& matrix, const Tensor& changed) const;
};

/// Receives the gradient of some rows. The caller may reuse the buffer of `gradient` after the call. May be called from
/// several threads at a time, with different rows.
using RowUpdate = std::function<void(const Rows& rows, const Tensor& gradient)>;

/// Called with rows before they are read.
using RowsRead = std::function<void(const Rows& rows)>;

}  // namespace tandem
