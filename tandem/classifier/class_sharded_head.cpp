#include "tandem/classifier/class_sharded_head.h"

#include <ATen/ATen.h>

#include "tandem/base/rng.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/memory/meter.h"

namespace tandem::classifier {
namespace {
constexpr double kInitialDeviation = 0.01;
}

ClassShardedHead::ClassShardedHead(const HeadOptions& options, comm::ProcessGroup& group)
    : options_(options), group_(group) {
  TORCH_CHECK_VALUE(options.classes > 0, "head: classes is ", options.classes, ", wanted 1 or more");
  TORCH_CHECK_VALUE(options.dim > 0, "head: dim is ", options.dim, ", wanted 1 or more");
  const auto [begin, end] = comm::split_range(options.classes, group.size(), group.rank());
  first_ = begin;
  const memory::Scope scope(memory::Category::parameters);
  weight_ = at::empty({end - begin, options.dim}, options.dtype);
  fill_normal_(weight_, kInitialDeviation, options.seed, stream_of("head.weight"), begin * options.dim);
  weight_.set_requires_grad(true);
}

Tensor ClassShardedHead::loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) {
  const auto all_features = gather(features.to(options_.dtype), sizes);
  const auto all_targets = gather(targets, sizes);
  if (options_.naive) {
    TORCH_CHECK_VALUE(!update_, "head: the naive form has no blocks of rows to update, wanted the sharded one");
    return naive_softmax_loss(all_features, weight_, all_targets, first_, options_.classes, options_.scoring, group_);
  }
  return sharded_softmax_loss(all_features, weight_, all_targets, first_, options_.classes, options_.scoring, group_,
                              options_.blocks, update_);
}

Tensor ClassShardedHead::gather(const Tensor& rows, std::span<const int64_t> sizes) {
  const memory::Scope scope(memory::Category::communication);
  return comm::all_gather(rows, group_, 0, sizes);
}

Tensor ClassShardedHead::top_k(const Tensor& features, int64_t k, std::span<const int64_t> sizes) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK_VALUE(k >= 1 && k <= options_.classes, "head: k is ", k, ", wanted 1..", options_.classes);
  const auto rows = gather(features.to(options_.dtype), sizes);
  const auto scores = class_scores(rows, weight_, options_.scoring);  // [C_local, N]
  const int64_t own = std::min(k, scores.size(0));
  const auto [values, places] = scores.topk(own, 0);
  // Each rank may bring fewer than k; the parts go along dim 0.
  std::vector<int64_t> counts;
  for (const int64_t classes : comm::split_sizes(options_.classes, group_.size()))
    counts.push_back(std::min(k, classes));
  const auto all_values = comm::all_gather(values, group_, 0, counts);
  const auto all_ids = comm::all_gather(places + first_, group_, 0, counts);
  const auto best = std::get<1>(all_values.topk(k, 0));
  int64_t begin = 0;
  for (int rank = 0; rank < group_.rank(); ++rank) begin += sizes[rank];
  return all_ids.gather(0, best).t().slice(0, begin, begin + sizes[group_.rank()]).contiguous();
}

}  // namespace tandem::classifier
