#include "tandem/classifier/replicated_head.h"

#include <ATen/ATen.h>

#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/tangent.h"
#include "tandem/comm/collectives.h"

namespace tandem::classifier {
namespace {

HeadOptions of_one_rank(HeadOptions options) {
  TORCH_CHECK_VALUE(!options.naive, "head: the replicated form gathers no scores, wanted naive left out");
  TORCH_CHECK_VALUE(!options.sampling,
                    "head: the replicated form scores all classes, wanted the sharded one to sample");
  TORCH_CHECK_VALUE(!options.differentiates_twice || is_plain_softmax(options.scoring),
                    "head: this scoring has no second derivatives, wanted a softmax over inner products");
  options.counts.clear();
  options.shards = 0;
  return options;
}

/// [2] float64: of mean * counted, and of counted.
Tensor sums_over_ranks(const Tensor& mean, double counted, comm::ProcessGroup& group) {
  const CategoryScope scope(Category::communication);
  auto sums = at::full({2}, counted, mean.options().dtype(at::kDouble));
  sums[0].mul_(mean);
  comm::all_reduce_(sums, group);
  return sums;
}

}  // namespace

ReplicatedHead::ReplicatedHead(const HeadOptions& options, comm::ProcessGroup& group)
    : group_(group), alone_(comm::make_single_group()), shards_(options.shards), own_(of_one_rank(options), *alone_) {}

Tensor ReplicatedHead::loss(const Tensor& features, const Tensor& targets, std::span<const int64_t> sizes) {
  const auto own = own_loss(features, targets);
  if (shards_ > 0 && is_training_) return in_order(own);
  const auto counted = static_cast<double>(targets.ne(-1).sum().item<int64_t>());
  if (is_apart_) return own * (counted / static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
  const auto sums = sums_over_ranks(own.detach(), counted, group_), all = sums[1].clamp_min(1.0);
  const auto share = own * (counted / all).to(own.scalar_type());
  // The value is the same bits on all ranks, the gradient is this rank's rows'.
  return share - share.detach() + (sums[0] / all).to(own.scalar_type());
}

/// The mean over this rank's rows.
Tensor ReplicatedHead::own_loss(const Tensor& features, const Tensor& targets) {
  const auto& options = own_.options();
  if (!options.differentiates_twice) {
    const int64_t rows = targets.size(0);
    return own_.loss(features, targets, {&rows, 1});
  }
  const auto weight = own_.parameter().tensor;
  const auto bias = options.scoring.has_bias ? weight.select(1, options.dim) : Tensor();
  const auto scores = at::linear(features.to(options.dtype), weight.narrow(1, 0, options.dim), bias);
  return differentiable_cross_entropy(scores, targets.to(scores.device(), /*non_blocking=*/true),
                                      options.scoring.smoothing);
}

/// The means of all ranks, of which this rank's has a gradient.
Tensor ReplicatedHead::in_order(const Tensor& own) {
  const CategoryScope scope(Category::communication);
  const std::vector<int64_t> sizes(group_.size(), 1);
  const auto means = comm::all_gather(own.detach().reshape({1}), group_, 0, sizes);
  auto place = at::zeros_like(means);
  place[group_.rank()].fill_(1);
  return means + place * (own - own.detach());
}

Ranking ReplicatedHead::top_k(const Tensor& features, int64_t k, std::span<const int64_t>) {
  const int64_t rows = features.size(0);
  return own_.top_k(features, k, {&rows, 1});
}

void ReplicatedHead::set_row_update(RowUpdate update) {
  TORCH_CHECK_VALUE(!update,
                    "head: the replicated form's gradient is summed over the ranks after backward, wanted the sharded "
                    "one to update rows in it");
  own_.set_row_update(std::move(update));
}

parallel::Parameter ReplicatedHead::parameter(std::string name) const {
  return parallel::Parameter::replicated(std::move(name), own_.parameter().tensor);
}

}  // namespace tandem::classifier
