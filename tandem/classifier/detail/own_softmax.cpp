#include "tandem/classifier/detail/own_softmax.h"

#include <ATen/ATen.h>

#include "tandem/classifier/detail/block_softmax.h"
#include "tandem/classifier/detail/exponential_softmax.h"
#include "tandem/classifier/detail/lane.h"

namespace tandem::classifier::detail {

OwnSoftmax::OwnSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                       const Scoring& scoring, const BlockOptions& options, const ClassSample* sample)
    : blocks_(features, weight, scoring, options, sample),
      targets_(targets, first, features, weight, scoring, sample ? sample->ids.cpu() : Tensor()) {}

/// Without what stands behind the samples.
OwnSoftmax::OwnNumbers OwnSoftmax::numbers_of(const Running& merged) const {
  const auto own = [&](const Tensor& numbers) {
    return numbers.defined() ? numbers.narrow(0, 0, blocks_.num_samples()) : numbers;
  };
  return {own(merged.maximum), own(merged.sum), own(merged.total)};
}

void OwnSoftmax::begin_to_keep(const Tensor& features) {
  const auto& plan = blocks_.plan();
  if (plan.num_kept > 0) kept_ = at::empty({plan.num_kept, plan.columns}, blocks_.product_options(features));
}

Tensor OwnSoftmax::products_of(const Lane& lane, ClassRange classes) const {
  return is_kept(classes) ? kept_.narrow(0, classes.begin, classes.size()) : lane.products(classes);
}

void add_others(Running& rows, const Running& others, double log_weight) {
  const auto of_others = others.maximum + log_weight, larger = at::maximum(rows.maximum, of_others);
  rows.sum = rows.sum * (rows.maximum - larger).exp_() + others.sum * (of_others - larger).exp_();
  rows.maximum = larger;
}

std::unique_ptr<OwnSoftmax> make_own_softmax(const Tensor& features, const Tensor& weight, const Tensor& targets,
                                             int64_t first, const Scoring& scoring, const BlockOptions& options,
                                             const ClassSample* sample) {
  if (ExponentialSoftmax::suits(features, weight, scoring)) {
    return std::make_unique<ExponentialSoftmax>(features, weight, targets, first, scoring, options, sample);
  }
  return std::make_unique<BlockSoftmax>(features, weight, targets, first, scoring, options, sample);
}

}  // namespace tandem::classifier::detail
