#include "tandem/comm/detail/element_types.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "tandem/comm/detail/group_calls.h"

namespace tandem::comm::detail {
namespace {

constexpr std::array kReducible = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                   at::kByte,  at::kChar,   at::kInt,  at::kLong};

bool is_reducible(at::ScalarType type) { return std::ranges::find(kReducible, type) != kReducible.end(); }

}  // namespace

void check_reducible(const Tensor& x, const char* operation, Reduce op) {
  TORCH_CHECK_VALUE(is_reducible(x.scalar_type()), operation, ": tensor is ", x.scalar_type(),
                    ", wanted Float, Double, Half, BFloat16, Byte, Char, Int or Long");
  TORCH_CHECK_VALUE(op != Reduce::mean || x.is_floating_point(), operation, ": the mean is of ", x.scalar_type(),
                    ", wanted Float, Double, Half or BFloat16");
}

void check_movable(const Tensor& x, const char* operation, const ProcessGroup& group) {
  const auto type = x.scalar_type();
  TORCH_CHECK_VALUE(group.calls().own() != nullptr || !x.is_cpu() || is_reducible(type) || type == at::kBool, operation,
                    ": tensor is ", type,
                    ", wanted over sockets Float, Double, Half, BFloat16, Byte, Char, Int, Long or Bool");
}

}  // namespace tandem::comm::detail
