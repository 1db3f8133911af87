#include "tandem/base/rows.h"

#include <ATen/ATen.h>

namespace tandem {

Tensor Rows::of(const Tensor& matrix) const {
  return ids.defined() ? matrix.index_select(0, ids) : matrix.narrow(0, begin, count);
}

void Rows::put_back(const Tensor& matrix, const Tensor& changed) const {
  if (ids.defined()) matrix.index_copy_(0, ids, changed);
}

}  // namespace tandem
