#pragma once
#include <string>

#include "tandem/base/box.h"
#include "tandem/base/tensor.h"

namespace tandem::train::detail {

/// Throws DataError if `odd` is true anywhere: "<what>[2, 0] is -0.5, wanted <wanted>: <remedy>" for the first such
/// element. `odd` and `values` have the same sizes, and hold the elements `box` of a tensor.
void refuse_elements(const Tensor& values, const Tensor& odd, const Box& box, const std::string& what,
                     const std::string& wanted, const std::string& remedy = "");

/// True for each element that is no whole number which int64 can hold.
Tensor is_no_whole_number(const Tensor& values);

}  // namespace tandem::train::detail
