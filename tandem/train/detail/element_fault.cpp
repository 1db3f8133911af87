#include "tandem/train/detail/element_fault.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>

#include "tandem/base/error.h"

namespace tandem::train::detail {
namespace {

/// The index of the `place`-th element of the box, in C order, in the whole tensor: "[2, 0]", "" for a scalar.
std::string index_text(int64_t place, const Box& box) {
  std::string text;
  for (size_t dim = box.count.size(); dim-- > 0; place /= box.count[dim]) {
    text.insert(0, std::to_string(box.first[dim] + place % box.count[dim]) + (text.empty() ? "" : ", "));
  }
  return box.count.empty() ? "" : "[" + text + "]";
}

std::string number_text(double number) {
  if (std::isnan(number)) return "NaN";
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

}  // namespace

void refuse_elements(const Tensor& values, const Tensor& odd, const Box& box, const std::string& what,
                     const std::string& wanted, const std::string& remedy) {
  const auto places = odd.flatten().nonzero();
  if (places.size(0) == 0) return;
  const auto place = places[0].item<int64_t>();
  const auto number = values.flatten()[place].to(at::kDouble).item<double>();
  throw DataError(what + index_text(place, box) + " is " + number_text(number) + ", wanted " + wanted, remedy);
}

Tensor is_no_whole_number(const Tensor& values) {
  const auto wide = values.to(at::kDouble);
  return wide.eq(wide.trunc()).logical_and(wide.abs().lt(0x1p63)).logical_not();
}

}  // namespace tandem::train::detail
