#include "tandem/classifier/detail/feature_sums.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tandem/classifier/detail/score_passes.h"

namespace tandem::classifier::detail {
namespace {

/// The first of the lanes' sums, without what stands behind the samples.
Tensor own_rows(const Tensor& of_lanes, int64_t samples) {
  const auto own = of_lanes[0].narrow(0, 0, samples);
  return own.numel() == of_lanes.numel() ? own : own.clone();
}

}  // namespace

FeatureSums::FeatureSums(const ClassBlocks& blocks, const Tensor& features) : blocks_(blocks) {
  const int64_t lanes = blocks.plan().lanes, columns = blocks.plan().columns;
  const auto options = features.options();
  maximum_ = start_running(features, lanes, columns, false).maximum;
  ones_ = at::ones({columns}, options);
  nothing_ = at::zeros({columns}, options);
  scratch_ = at::zeros({lanes, columns}, options);
  weighed_ = at::zeros({lanes, columns, features.size(1)}, options);
  if (blocks.scoring().smoothing > 0) even_ = at::zeros_like(weighed_);
}

void FeatureSums::add_product(const Tensor& coefficients, const Tensor& entering, Tensor sum) const {
  if (blocks_.is_rounded()) {
    add_rounded(at::mm(coefficients.t(), entering), sum);
  } else {
    sum.addmm_(coefficients.t(), entering);
  }
}

void FeatureSums::add(int64_t lane, const Tensor& entering, Tensor& products, const Tensor& factors,
                      const Tensor& maximum, const LocalTargets& targets, ClassRange classes) {
  if (products.size(0) == 0) return;
  if (even_.defined()) {
    auto even = factors.unsqueeze(1).expand(products.sizes()).to(products.scalar_type()).contiguous();
    if (std::isfinite(blocks_.filter())) {
      even.masked_fill_((products.to(factors.scalar_type()) * factors.unsqueeze(1)).gt(blocks_.filter()), 0);
    }
    targets.clear(even, classes);
    add_product(even, entering, even_.select(0, lane));
  }
  auto before = maximum_.select(0, lane);
  auto sum = weighed_.select(0, lane);
  sum.mul_((before - maximum).exp_().unsqueeze(1));
  before.copy_(maximum);
  differentiate_block(products, factors, blocks_.filter(), {maximum, ones_, nothing_}, scratch_.select(0, lane));
  targets.clear(products, classes);
  add_product(products, entering, sum);
}

void FeatureSums::end(const Tensor& maximum) {
  const int64_t lanes = maximum_.size(0), samples = blocks_.num_samples();
  for (int64_t lane = 0; lane < lanes; ++lane) {
    weighed_.select(0, lane).mul_((maximum_[lane] - maximum).exp_().unsqueeze(1));
    if (lane == 0) continue;
    weighed_[0].add_(weighed_[lane]);
    if (even_.defined()) even_[0].add_(even_[lane]);
  }
  weighed_ = own_rows(weighed_, samples);
  if (even_.defined()) even_ = own_rows(even_, samples);
}

}  // namespace tandem::classifier::detail
