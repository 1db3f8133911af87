#include "tandem/classifier/detail/block_plan.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "tandem/kernels/score_kernels.h"

namespace tandem::classifier::detail {
namespace {

// A block's products and its rows of the weight stay in a core's cache between their GEMMs, and these are large enough
// to run at full speed.
constexpr int64_t kBlockBytes = 1 << 20, kFewestRows = 128, kMostRows = 8192;

// Elsewhere each operation on a block is the start of a kernel, beside which a block's bytes must take long.
constexpr int64_t kDeviceBlockBytes = 64 << 20, kMostDeviceRows = 1 << 20;

int64_t most_rows(int64_t row_bytes, bool is_on_cpu) {
  return is_on_cpu ? std::clamp(kBlockBytes / row_bytes, kFewestRows, kMostRows)
                   : std::clamp(kDeviceBlockBytes / row_bytes, kFewestRows, kMostDeviceRows);
}

/// As many lanes as find a block of the fewest rows, and as many blocks for one as for the other.
void share_out(BlockPlan& plan, int64_t classes, int threads) {
  const int64_t fewest = std::min(kFewestRows, plan.most);
  plan.lanes = static_cast<int>(std::clamp<int64_t>(at::divup(classes, fewest), 1, threads));
  const int64_t rounds = std::max<int64_t>(1, at::divup(classes, plan.lanes * plan.most));
  plan.block = std::max<int64_t>(1, at::divup(classes, plan.lanes * rounds));
}

}  // namespace

BlockPlan plan_blocks(const BlockOptions& options, const Scoring& scoring, int64_t samples, int64_t dim,
                      int64_t classes, at::ScalarType type, int threads, bool is_on_cpu) {
  const auto bytes = static_cast<int64_t>(c10::elementSize(type));
  BlockPlan plan;
  plan.products = options.bf16 && type == at::kFloat ? at::kBFloat16 : type;
  plan.columns = kernels::padded(samples);
  const int64_t row_bytes = std::max<int64_t>(1, std::max(plan.columns, dim) * bytes);
  plan.most = options.rows > 0 ? options.rows : most_rows(row_bytes, is_on_cpu);
  share_out(plan, classes, threads);
  const auto kept_row = plan.columns * static_cast<int64_t>(c10::elementSize(plan.products));
  const int64_t fit = options.keep_bytes / std::max<int64_t>(kept_row, 1);
  if (scoring.filter < 1.0) return plan;  // forward loses what was above it: nothing can be kept
  plan.num_kept = fit >= classes ? classes : fit / plan.block * plan.block;
  return plan;
}

}  // namespace tandem::classifier::detail
