#include "tandem/classifier/detail/block_gradients.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/classifier/detail/score_passes.h"

namespace tandem::classifier::detail {

BlockGradients::BlockGradients(const ClassBlocks& blocks, LocalTargets& targets, const Tensor& features,
                               const Tensor& weight, int num_lanes, const RowUpdate& update, bool sums_features)
    : blocks_(blocks), targets_(targets), update_(update) {
  inputs_ = blocks.directions_of(features);
  if (sums_features) {
    of_inputs_ = at::zeros({num_lanes, blocks.plan().columns, features.size(1)}, features.options());
  }
  along_samples_ = at::zeros({num_lanes, blocks.plan().columns}, features.options());
  along_rows_ = at::zeros({blocks.num_samples()}, features.options().dtype(at::kDouble));
  const CategoryScope scope(Category::gradients);
  const int64_t rows = update ? num_lanes * blocks.plan().block : blocks.num_classes();
  of_weight_ = at::empty({rows, weight.size(1)}, weight.options());
}

void BlockGradients::multiply(int64_t lane, OwnRows own, const Tensor& products, const Tensor& along_classes,
                              Tensor& of_own) const {
  auto of_inputs = of_inputs_.defined() ? of_inputs_.select(0, lane) : Tensor();
  const bool adds_along = blocks_.scoring().normalise_weight || blocks_.has_radial();
  if (!blocks_.is_rounded()) {
    if (of_inputs.defined()) of_inputs.addmm_(products.t(), own.exact);
    at::mm_out(of_own, products, inputs_);
    if (adds_along) add_along(of_own, own.exact, along_classes, of_own);
    return;
  }
  if (of_inputs.defined()) {
    add_rounded(at::mm(products.t(), own.entering), of_inputs);  // a block's sum is rounded, the whole is not
  }
  at::mm_out(own.entering, products, inputs_);  // nobody reads the rows any more
  if (adds_along) {
    add_along(own.entering, own.exact, along_classes, of_own);
  } else {
    of_own.copy_(own.entering);
  }
}

void BlockGradients::add(int64_t lane, const OwnRows& own, ClassRange classes, Tensor& products,
                         Tensor& along_classes) {
  const auto& scoring = blocks_.scoring();
  if (!scoring.normalise_weight) along_classes.zero_();
  targets_.put_gradients(products, scoring, classes, along_classes, along_rows_);
  if (scoring.normalise_weight) {
    const auto factors = blocks_.factors_of(classes, along_classes.options());
    along_classes.mul_(factors).mul_(factors).neg_();
  }
  auto of_own = of_weight_.narrow(0, update_ ? lane * blocks_.plan().block : classes.begin, classes.size());
  multiply(lane, own, products, along_classes, of_own);
  if (update_) update_(blocks_.rows_of(classes), of_own);
}

Tensor BlockGradients::of_features(const Tensor& features) {
  auto along = along_rows_.to(features.scalar_type());
  auto sum = of_inputs_[0];
  for (int64_t lane = 1; lane < of_inputs_.size(0); ++lane) sum.add_(of_inputs_[lane]);
  const auto& inverse = blocks_.inverse_features();
  if (inverse.defined()) along.add_(along_samples_.sum({0}).narrow(0, 0, blocks_.num_samples()));
  return to_features(blocks_, sum.narrow(0, 0, blocks_.num_samples()), std::move(along), features, inverse);
}

Tensor to_features(const ClassBlocks& blocks, Tensor gradient, Tensor along, const Tensor& features,
                   const Tensor& inverse) {
  if (!inverse.defined()) {
    gradient.mul_(blocks.scoring().scale);
    return blocks.has_radial() ? gradient.addcmul_(features, along.unsqueeze(1)) : gradient;
  }
  along.mul_(inverse).mul_(inverse);
  gradient.mul_((inverse * blocks.scoring().scale).unsqueeze(1));
  return gradient.addcmul_(features, along.unsqueeze(1), -1);
}

}  // namespace tandem::classifier::detail
