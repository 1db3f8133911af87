#include "tandem/classifier/detail/lane.h"

#include <ATen/ATen.h>

#include "tandem/classifier/detail/score_passes.h"

namespace tandem::classifier::detail {

Lane::Lane(const ClassBlocks& blocks, const Tensor& features, int64_t index, bool has_products) : index_(index) {
  const auto options = blocks.product_options(features);
  if (has_products) products_ = at::empty({blocks.plan().block, blocks.plan().columns}, options);
  if (blocks.is_rounded()) rounded_ = at::empty({blocks.plan().block, features.size(1)}, options);
}

Tensor Lane::entering(const Tensor& own_weight) const {
  return rounded_.defined() ? rounded_.narrow(0, 0, own_weight.size(0)).copy_(own_weight) : own_weight;
}

Tensor Lane::measure(const Tensor& own_weight, Tensor inverse) const {
  if (!inverse.defined()) return entering(own_weight);
  if (!rounded_.defined()) {
    inverse.copy_(inverse_lengths(own_weight));
    return own_weight;
  }
  auto rounded = rounded_.narrow(0, 0, own_weight.size(0));
  round_rows(own_weight, rounded, inverse);
  return rounded;
}

}  // namespace tandem::classifier::detail
