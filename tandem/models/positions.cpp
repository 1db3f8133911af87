#include "tandem/models/positions.h"

#include <ATen/ATen.h>

#include <cmath>

namespace tandem::models {
namespace {

int64_t side_of(int64_t patches) { return std::llround(std::sqrt(static_cast<double>(patches))); }

}  // namespace

bool can_be_resampled(at::IntArrayRef positions, at::IntArrayRef wanted) {
  if (positions.size() != 3 || wanted.size() != 3 || positions[2] != wanted[2]) return false;
  if (positions[0] != 1 || positions[1] < 2) return false;
  const int64_t side = side_of(positions[1] - 1);
  return side * side == positions[1] - 1;
}

Tensor resampled_positions(const Tensor& positions, int64_t rows, int64_t columns) {
  TORCH_CHECK_VALUE(can_be_resampled(positions.sizes(), positions.sizes()), "positions: sizes are ", positions.sizes(),
                    ", wanted [1, 1 + n * n, width]");
  const int64_t patches = positions.size(1) - 1, side = side_of(patches), width = positions.size(2);
  const auto grid = positions.narrow(1, 1, patches).reshape({1, side, side, width}).permute({0, 3, 1, 2});
  const auto type = positions.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto other = at::_upsample_bicubic2d_aa(grid.to(type), {rows, columns}, /*align_corners=*/false);
  const auto tokens = other.permute({0, 2, 3, 1}).reshape({1, rows * columns, width}).to(positions.scalar_type());
  return at::cat({positions.narrow(1, 0, 1), tokens}, 1);
}

}  // namespace tandem::models
