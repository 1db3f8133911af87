#include "tandem/classifier/head_memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/classifier/detail/block_plan.h"
#include "tandem/kernels/score_kernels.h"

namespace tandem::classifier {
namespace {

int64_t& of(CategoryBytes& bytes, Category category) { return bytes[static_cast<size_t>(category)]; }

/// Of this rank, expected.
int64_t scored_classes(const HeadOptions& options, const HeadLoad& load) {
  if (!options.sampling) return load.own_classes;
  const double share =
      std::min(1.0, static_cast<double>(load.own_classes) / static_cast<double>(std::max<int64_t>(options.classes, 1)));
  const double targets = std::min(static_cast<double>(load.samples) * share, static_cast<double>(load.own_classes));
  return std::llround(targets + options.sampling->rate * (static_cast<double>(load.own_classes) - targets));
}

detail::BlockPlan plan_of(const HeadOptions& options, const HeadLoad& load, int64_t scored) {
  return detail::plan_blocks(options.blocks, options.scoring, load.samples, options.dim, scored, options.dtype,
                             load.threads);
}

/// What a block adds to the features' gradient, and about what oneDNN needs to work it out: up to 512 rows of the
/// factor that it turns, its sums in float32 where these are not all, 64 KiB a thread.
int64_t rounded_product(const detail::BlockPlan& plan, int64_t dim, int threads) {
  constexpr int64_t kRowsAtOnce = 512;
  const int64_t sums = plan.block > kRowsAtOnce ? dim * 4 : 256;
  return plan.columns * (dim * 2 + std::min(plan.block, kRowsAtOnce) * 2 + sums) + int64_t{threads} * (64 << 10);
}

/// Of one lane: its block, and its part of the sums.
int64_t lane_activations(const HeadOptions& options, const HeadLoad& load, const detail::BlockPlan& plan,
                         int64_t scored) {
  const auto element = static_cast<int64_t>(c10::elementSize(options.dtype));
  const auto product = static_cast<int64_t>(c10::elementSize(plan.products));
  int64_t bytes = plan.columns * (options.dim + 1) * element + plan.block * element;  // features' gradient; of classes
  if (plan.num_kept < scored) bytes += plan.block * plan.columns * product;
  if (options.sampling) bytes += plan.block * options.dim * element;
  if (plan.products != options.dtype)
    bytes += plan.block * options.dim * product + rounded_product(plan, options.dim, load.threads);
  return bytes;
}

int64_t block_activations(const HeadOptions& options, const HeadLoad& load, int64_t scored) {
  const auto plan = plan_of(options, load, scored);
  const auto element = static_cast<int64_t>(c10::elementSize(options.dtype));
  const auto product = static_cast<int64_t>(c10::elementSize(plan.products));
  const bool is_corrected = options.sampling && options.sampling->is_corrected;
  int64_t bytes = plan.lanes * lane_activations(options, load, plan, scored);
  bytes += plan.num_kept * plan.columns * product;
  bytes += plan.columns * options.dim * product;  // what enters the products
  if (options.scoring.normalise_weight) bytes += scored * element;
  if (options.scoring.normalise_features) bytes += load.samples * element;
  bytes += (is_corrected ? 4 : 3) * plan.columns * element;
  bytes += 3 * load.samples * element;  // of the rows: loss, share, floor
  if (options.sampling) bytes += scored * 8;
  return bytes;
}

/// All scores on rank 0, besides those that each rank has of its own classes: as they came, with margins, with what
/// becomes their gradient.
CategoryBytes naive_memory(const HeadOptions& options, const HeadLoad& load, CategoryBytes bytes) {
  const auto element = static_cast<int64_t>(c10::elementSize(options.dtype));
  const int64_t samples = kernels::padded(load.samples), own = load.own_classes * samples * element;
  const int64_t lengths = options.scoring.normalise_weight ? load.own_classes * element : 0;
  auto forward = bytes, backward = bytes;
  const int64_t plain = load.own_classes * load.samples * element;
  of(forward, Category::activations) = lengths + own + 2 * plain;
  if (load.is_root) of(forward, Category::activations) += 2 * options.classes * load.samples * element;
  of(backward, Category::gradients) = load.own_classes * options.dim * element;
  of(backward, Category::activations) = lengths + 6 * own + 2 * samples * options.dim * element;
  const auto sum = [](const auto& all) { return std::accumulate(all.begin(), all.end(), int64_t{0}); };
  return sum(forward) > sum(backward) ? forward : backward;
}

}  // namespace

CategoryBytes head_memory(const HeadOptions& options, const HeadLoad& load) {
  CategoryBytes bytes{};
  const auto element = static_cast<int64_t>(c10::elementSize(options.dtype));
  const int64_t row = options.dim * element, scored = scored_classes(options, load);
  of(bytes, Category::parameters) = load.own_classes * row;
  of(bytes, Category::optimizer) = load.num_states * load.own_classes * row;
  if (load.num_states == 2) of(bytes, Category::optimizer) += sizeof(float);  // AdamW's count of steps
  if (load.moves_late) of(bytes, Category::optimizer) += load.own_classes * static_cast<int64_t>(sizeof(int));
  if (load.ranks > 1) of(bytes, Category::communication) = load.samples * row;  // the features of all
  if (options.naive) return naive_memory(options, load, bytes);
  const auto plan = plan_of(options, load, scored);
  of(bytes, Category::gradients) = (load.steps_in_backward ? plan.lanes * plan.block : scored) * row;
  of(bytes, Category::activations) = block_activations(options, load, scored);
  // Copies of the sampled rows of the blocks and of their states, which the step works on.
  if (options.sampling && load.steps_in_backward)
    of(bytes, Category::optimizer) += (1 + load.num_states) * plan.lanes * plan.block * row;
  return bytes;
}

std::vector<int64_t> largest_draws(const HeadOptions& options, const HeadLoad& load) {
  const double rate = options.sampling->rate;
  const int64_t targets = std::min(load.samples, load.own_classes);
  const int64_t most = targets + draws_of(rate, load.own_classes - targets).most;
  const auto plan = plan_of(options, load, most);
  const int64_t round = plan.lanes * plan.most, whole_rounds = (most - 1) / round * round;
  if (whole_rounds <= 0 || whole_rounds < draws_of(rate, load.own_classes).least) return {most};
  return {most, whole_rounds};
}

}  // namespace tandem::classifier
