#include "tandem/classifier/detail/block_plan.h"

#include <algorithm>

#include "tandem/classifier/detail/score_kernels.h"

namespace tandem::classifier::detail {
namespace {

// A block's products and its rows of the weight stay in a core's cache between their GEMMs, and these are large enough
// to run at full speed.
constexpr int64_t kBlockBytes = 2 << 20, kFewestRows = 128, kMostRows = 8192;

int64_t rows_of_block(const BlockOptions& options, int64_t bytes_a_row) {
  if (options.rows > 0) return options.rows;
  return std::clamp(kBlockBytes / std::max<int64_t>(bytes_a_row, 1), kFewestRows, kMostRows);
}

}  // namespace

BlockPlan plan_blocks(const BlockOptions& options, const Scoring& scoring, int64_t samples, int64_t dim,
                      int64_t classes, at::ScalarType type) {
  const auto bytes = static_cast<int64_t>(c10::elementSize(type));
  BlockPlan plan;
  plan.products = options.bf16 && type == at::kFloat ? at::kBFloat16 : type;
  plan.columns = padded(samples);
  plan.block = rows_of_block(options, std::max(plan.columns, dim) * bytes);
  const auto kept_row = plan.columns * static_cast<int64_t>(c10::elementSize(plan.products));
  const int64_t fit = options.keep_bytes / std::max<int64_t>(kept_row, 1);
  if (scoring.filter < 1.0) return plan;  // forward loses what was above it: nothing can be kept
  plan.num_kept = fit >= classes ? classes : fit / plan.block * plan.block;
  return plan;
}

}  // namespace tandem::classifier::detail
