#include "tandem/classifier/class_sharded_head.h"

#include <ATen/ATen.h>

#include <limits>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/classifier/detail/on_device.h"
#include "tandem/classifier/ordered_softmax_loss.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"

namespace tandem::classifier {
namespace {

constexpr double kInitialDeviation = 0.01;
constexpr int64_t kDrawnBytes = 16 << 20;  // of rows at once, on the host
constexpr int64_t kScoreBytes = 16 << 20;  // of a block of classes, while the best are looked for

}  // namespace

ClassShardedHead::ClassShardedHead(const HeadOptions& options, comm::ProcessGroup& group)
    : options_(options), group_(group) {
  TORCH_CHECK_VALUE(options.classes > 0, "head: classes is ", options.classes, ", wanted 1 or more");
  TORCH_CHECK_VALUE(options.dim > 0, "head: dim is ", options.dim, ", wanted 1 or more");
  auto& counts = options_.counts;
  if (counts.empty()) {
    counts = options.shards > 0 ? ordered_counts({options.shards, options.classes}, group.size())
                                : comm::split_sizes(options.classes, group.size());
  }
  TORCH_CHECK_VALUE(static_cast<int>(counts.size()) == group.size() &&
                        std::accumulate(counts.begin(), counts.end(), int64_t{0}) == options.classes,
                    "head: counts are ", at::IntArrayRef(counts), ", wanted one a rank, ", options.classes, " in all");
  first_ = std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
  const CategoryScope scope(Category::parameters);
  weight_ = at::empty({counts[group.rank()], options.columns()}, at::device(options.device).dtype(options.dtype));
  if (options.draws) draw();
  weight_.set_requires_grad(true);
}

/// On the host, which need not have room for all rows of a device.
void ClassShardedHead::draw() {
  const int64_t columns = weight_.size(1), row_bytes = columns * static_cast<int64_t>(weight_.element_size());
  const int64_t most = weight_.is_cpu() ? weight_.size(0) : std::max<int64_t>(1, kDrawnBytes / row_bytes);
  for (int64_t begin = 0; begin < weight_.size(0); begin += most) {
    const auto own = weight_.narrow(0, begin, std::min(most, weight_.size(0) - begin));
    const auto drawn = own.is_cpu() ? own : at::empty(own.sizes(), own.scalar_type());
    fill_normal_(drawn, kInitialDeviation, options_.seed, stream_of("head.weight"),
                 {.first = {first_ + begin, 0}, .count = drawn.sizes().vec()}, {options_.classes, columns});
    if (!own.is_cpu()) own.copy_(drawn);
  }
}

Tensor ClassShardedHead::loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) {
  if (options_.shards > 0 && is_training_) {
    return ordered_softmax_loss(inputs(features), weight_, targets, sizes, {options_.shards, options_.classes},
                                options_.scoring, group_, options_.blocks);
  }
  const auto all_features = gather(inputs(features), sizes);
  const auto all_targets = gather(targets, sizes);
  if (options_.naive) {
    TORCH_CHECK_VALUE(!options_.sampling, "head: the naive form scores all classes, wanted the sharded one to sample");
    TORCH_CHECK_VALUE(!update_, "head: the naive form has no blocks of rows to update, wanted the sharded one");
    return naive_softmax_loss(all_features, weight_, all_targets, first_, options_.counts, options_.scoring, group_);
  }
  return sharded_softmax_loss(all_features, weight_, all_targets, first_, options_.classes, options_.scoring, group_,
                              {.blocks = options_.blocks, .update = update_, .sample = sample(all_targets)});
}

/// What the weight multiplies.
Tensor ClassShardedHead::inputs(const Tensor& features) const {
  const auto rows = features.to(options_.dtype);
  return options_.scoring.has_bias ? at::cat({rows, at::ones({rows.size(0), 1}, rows.options())}, 1) : rows;
}

std::optional<ClassSample> ClassShardedHead::sample(const Tensor& targets) const {
  if (!options_.sampling || !is_training_) return std::nullopt;
  auto sample = sample_classes(*options_.sampling, options_.seed, step_, first_, weight_.size(0), targets);
  if (read_) read_({.count = sample.ids.numel(), .ids = detail::on_device(sample.ids, weight_.device())});
  return sample;
}

Tensor ClassShardedHead::gather(const Tensor& rows, std::span<const int64_t> sizes) {
  const CategoryScope scope(Category::communication);
  return comm::all_gather(rows, group_, 0, sizes);
}

/// Of this rank's classes, for each of N rows.
struct ClassShardedHead::OwnBest {
  Tensor scores, places;  // [k or fewer, N], best first
  Tensor log_sum;         // [N] of the exponentials of all scores; -inf without classes
};

ClassShardedHead::OwnBest ClassShardedHead::best_of_own(const Tensor& rows, int64_t k) const {
  const int64_t classes = weight_.size(0), row_bytes = rows.size(0) * static_cast<int64_t>(rows.element_size());
  const int64_t block = std::max(k, kScoreBytes / std::max<int64_t>(row_bytes, 1));
  OwnBest best{.scores = at::empty({0, rows.size(0)}, rows.options()),
               .places = at::empty({0, rows.size(0)}, rows.options().dtype(at::kLong)),
               .log_sum = at::full({rows.size(0)}, -std::numeric_limits<double>::infinity(), rows.options())};
  for (int64_t begin = 0; begin < classes; begin += block) {
    const auto own = weight_.narrow(0, begin, std::min(block, classes - begin));
    const auto scores = class_scores(rows, own, options_.scoring);
    const auto [highest, at] = scores.topk(std::min(k, own.size(0)), 0);
    const auto both = at::cat({best.scores, highest}), of_both = at::cat({best.places, at + begin});
    const auto kept = both.topk(std::min(k, both.size(0)), 0);
    best.scores = std::get<0>(kept);
    best.places = of_both.gather(0, std::get<1>(kept));
    best.log_sum = at::logaddexp(best.log_sum, at::logsumexp(scores, 0));
  }
  return best;
}

void ClassShardedHead::run_apart() {
  throw SettingsError("staleness is more than 0 with a head that is split over the ranks, wanted a replicated one",
                      "leave staleness out, or hold the head whole on each rank");
}

Ranking ClassShardedHead::top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK_VALUE(k >= 1 && k <= options_.classes, "head: k is ", k, ", wanted 1..", options_.classes);
  const auto rows = gather(inputs(features), sizes);
  const auto own = best_of_own(rows, k);
  // Each rank may bring fewer than k; the parts go along dim 0.
  std::vector<int64_t> counts;
  for (const int64_t classes : options_.counts) counts.push_back(std::min(k, classes));
  const auto all_scores = comm::all_gather(own.scores, group_, 0, counts);
  const auto all_ids = comm::all_gather(own.places + first_, group_, 0, counts);
  const auto log_sums = comm::all_gather(own.log_sum.unsqueeze(0), group_, 0);
  const auto [best, at] = all_scores.topk(k, 0);
  int64_t begin = 0;
  for (int rank = 0; rank < group_.rank(); ++rank) begin += sizes[rank];
  const auto own_rows = [&](const Tensor& of_all) {
    return of_all.t().slice(0, begin, begin + sizes[group_.rank()]).contiguous();
  };
  return {own_rows(all_ids.gather(0, at)), own_rows((best - log_sums.logsumexp(0)).exp())};
}

}  // namespace tandem::classifier
