#include "tandem/classifier/block_sizes.h"

#include <algorithm>

#include "tandem/classifier/detail/block_plan.h"
#include "tandem/kernels/score_kernels.h"

namespace tandem::classifier {
namespace {

detail::BlockPlan plan_of(const HeadOptions& options, int64_t samples, int64_t classes, int threads) {
  return detail::plan_blocks(options.blocks, options.scoring, samples, options.columns(), classes, options.dtype,
                             threads, options.device.is_cpu());
}

/// Of the scores of one class.
int64_t bytes_of_class(const HeadOptions& options, int64_t samples) {
  const auto plan = plan_of(options, samples, 1, 1);
  return std::max<int64_t>(1, plan.columns * static_cast<int64_t>(c10::elementSize(plan.products)));
}

}  // namespace

std::vector<int64_t> largest_draws(const HeadOptions& options, int64_t own_classes, int64_t samples, int threads) {
  const double rate = options.sampling->rate;
  const int64_t targets = std::min(samples, own_classes);
  const int64_t most = targets + draws_of(rate, own_classes - targets).most;
  const auto plan = plan_of(options, samples, most, threads);
  const int64_t round = plan.lanes * plan.most, whole_rounds = (most - 1) / round * round;
  if (whole_rounds <= 0 || whole_rounds < draws_of(rate, own_classes).least) return {most};
  return {most, whole_rounds};
}

int64_t most_kept(const HeadOptions& options, int64_t samples) {
  return options.blocks.keep_bytes / bytes_of_class(options, samples);
}

int64_t block_rows(const HeadOptions& options, int64_t samples) { return plan_of(options, samples, 1, 1).most; }

HeadOptions in_same_blocks(HeadOptions options, int64_t samples, int64_t fewer_samples, int64_t fewer_features) {
  const auto rows = block_rows(options, samples), kept = most_kept(options, samples);
  options.blocks.rows = rows;
  options.blocks.keep_bytes = kept * bytes_of_class(options, fewer_samples);
  options.dim = fewer_features;
  return options;
}

}  // namespace tandem::classifier
