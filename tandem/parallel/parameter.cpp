#include "tandem/parallel/parameter.h"

#include <ATen/ATen.h>

namespace tandem::parallel {

Parameter::Parameter(std::string of_name, Tensor of_tensor, std::optional<RowRange> of_rows)
    : name(std::move(of_name)), tensor(std::move(of_tensor)), rows(of_rows) {}

Parameter Parameter::replicated(std::string name, Tensor tensor) {
  return {std::move(name), std::move(tensor), std::nullopt};
}

Parameter Parameter::split(std::string name, Tensor tensor, const RowRange& rows) {
  TORCH_CHECK_VALUE(tensor.dim() >= 1 && tensor.size(0) == rows.count, "parameter ", name, ": shape is ",
                    tensor.sizes(), ", wanted ", rows.count, " rows as its range has");
  TORCH_CHECK_VALUE(rows.first >= 0 && rows.count >= 0 && rows.first + rows.count <= rows.total, "parameter ", name,
                    ": rows are ", rows.first, "..", rows.first + rows.count - 1, ", wanted some of 0..",
                    rows.total - 1);
  return {std::move(name), std::move(tensor), rows};
}

Parameter Parameter::beside(std::string of_name, Tensor of_tensor) const {
  return rows ? split(std::move(of_name), std::move(of_tensor), *rows)
              : replicated(std::move(of_name), std::move(of_tensor));
}

}  // namespace tandem::parallel
