#include "tandem/classifier/detail/exponential_softmax.h"

#include <ATen/ATen.h>

#include <numbers>

#include "tandem/base/context.h"
#include "tandem/base/device_kernels.h"
#include "tandem/classifier/detail/block_gradients.h"
#include "tandem/classifier/detail/on_device.h"

namespace tandem::classifier::detail {

/// The gradients of one backward pass, summed block by block.
class ExponentialSoftmax::Gradients {
 public:
  Gradients(const ClassBlocks& blocks, LocalTargets& targets, const Tensor& features, const Tensor& weight,
            const RowUpdate& update, bool sums_features)
      : blocks_(blocks), targets_(targets), update_(update), inputs_(blocks.directions_of(features)) {
    scaled_ = at::empty_like(inputs_);
    along_rows_ = at::zeros({blocks.num_samples()}, features.options().dtype(at::kDouble));
    if (sums_features) of_inputs_ = at::zeros(inputs_.sizes(), features.options());
    const CategoryScope scope(Category::gradients);
    of_weight_ = at::empty({update ? blocks.plan().block : blocks.num_classes(), weight.size(1)}, weight.options());
  }

  const Tensor& inputs() const { return inputs_; }
  const Tensor& of_weight() const { return of_weight_; }

  /// `exponentials`: f E; `scale` [columns]: c. The targets know the gradients of their values.
  void add(const OwnRows& own, ClassRange classes, const Tensor& exponentials, const Tensor& scale) {
    const auto factors = blocks_.factors_of(classes, own.exact.options());
    if (of_inputs_.defined()) {
      const auto sums = at::mm(exponentials.t(), own.entering);
      of_inputs_.addcmul_(sums.to(of_inputs_.scalar_type()), scale.unsqueeze(1));
      targets_.add_to_features(own.exact, classes, of_inputs_);
    }
    at::mul_out(scaled_, inputs_, scale.unsqueeze(1));
    auto of_own = of_weight_.narrow(0, update_ ? 0 : classes.begin, classes.size());
    const bool is_rounded = blocks_.is_rounded();
    auto raw = is_rounded ? own.entering : of_own;  // nobody reads the rounded rows any more
    at::mm_out(raw, exponentials, scaled_);
    add_along_weight(raw, own.exact, factors, classes, of_own);
    targets_.add_to_weight(inputs_, classes, of_own);
    if (update_) update_(blocks_.rows_of(classes), of_own);
  }

  /// From the gradient of what entered the products to that of the features, [N, D]. Call it once, after all blocks.
  Tensor of_features(const Tensor& features) {
    auto gradient = of_inputs_.narrow(0, 0, blocks_.num_samples());
    const auto& inverse = blocks_.inverse_features();
    auto along = along_rows_.to(features.scalar_type());
    if (inverse.defined()) {
      along = (features * gradient).sum({1}).mul_(inverse).mul_(blocks_.scoring().scale);
    }
    return to_features(blocks_, std::move(gradient), std::move(along), features, inverse);
  }

 private:
  /// Takes what lies along a class's weight out of its gradient where the length is divided out; elsewhere adds what a
  /// margin depends on the length by.
  void add_along_weight(Tensor& raw, const Tensor& weight, const Tensor& factors, ClassRange classes, Tensor& of_own) {
    auto along = at::zeros({classes.size()}, weight.options());
    targets_.add_along(blocks_.scoring(), classes, along, along_rows_);
    if (blocks_.scoring().normalise_weight) {
      project_along(raw, weight, factors, along);
    } else if (!blocks_.has_radial()) {
      if (!of_own.is_alias_of(raw)) of_own.copy_(raw);
      return;
    }
    detail::add_along(raw, weight, along, of_own);
  }

  const ClassBlocks& blocks_;
  LocalTargets& targets_;
  const RowUpdate& update_;
  Tensor inputs_;      // what entered the products, [columns, D]
  Tensor scaled_;      // times c
  Tensor of_inputs_;   // [columns, D]; undefined: left out
  Tensor of_weight_;   // [scored, D], or [block, D] with an update
  Tensor along_rows_;  // what margins depend on the features' lengths by, [N] in float64
};

bool ExponentialSoftmax::suits(const Tensor& features, const Tensor& weight, const Scoring& scoring) {
  return !features.is_cpu() && have_kernels(Kernels::scores, features) && weight.is_contiguous() &&
         scoring.smoothing == 0 && scoring.filter >= 1;
}

ExponentialSoftmax::Sums ExponentialSoftmax::start_sums(const Tensor& features) const {
  const int64_t columns = blocks_.plan().columns;
  return {at::full({columns}, -kernels::kFarExponent, features.options().dtype(at::kInt)),
          at::zeros({columns}, features.options())};
}

Running ExponentialSoftmax::running_of(const Sums& sums) const {
  return {sums.exponent.to(sums.sum.scalar_type()).mul_(std::numbers::ln2), sums.sum, {}};
}

OwnSoftmax::OwnNumbers ExponentialSoftmax::forward(const Tensor& features, const Tensor& weight) {
  const auto& plan = blocks_.plan();
  blocks_.measure_features(features, weight);
  const auto directions = blocks_.directions_of(features);
  begin_to_keep(features);
  if (blocks_.is_rounded()) targets_.multiply(blocks_, features, weight);
  const auto ranges = blocks_.ranges();
  exponents_ = at::empty({static_cast<int64_t>(ranges.size()), plan.columns}, features.options().dtype(at::kInt));
  const bool has_others = blocks_.log_weight() > 0;
  const auto sums = start_sums(features), others = has_others ? start_sums(features) : Sums();
  const Lane lane(blocks_, features, 0, needs_lanes_products());
  for (size_t tile = 0; tile < ranges.size(); ++tile) {
    const auto classes = ranges[tile];
    const auto own_weight = blocks_.rows_of(classes).of(weight);
    auto products = products_of(lane, classes);
    at::mm_out(products, lane.measure(own_weight, blocks_.inverse_weight_of(classes)), directions.t());
    const auto factors = blocks_.factors_of(classes, weight.options());
    targets_.score(blocks_.is_rounded() ? Tensor() : products, factors, classes, blocks_.scoring());
    targets_.put_values(products, factors, classes, /*leaves_out=*/blocks_.is_rounded());
    const auto& to = blocks_.log_weight_of(classes) > 0 ? others : sums;
    exponentiate_block(products, factors, exponents_[static_cast<int64_t>(tile)], to.exponent, to.sum);
  }
  auto merged = running_of(sums);
  if (has_others) add_others(merged, running_of(others), blocks_.log_weight());
  if (blocks_.is_rounded()) targets_.add_left_out(merged);
  return numbers_of(merged);
}

Tensor ExponentialSoftmax::exponentials(const Lane& lane, const Tensor& entering, const Tensor& inputs,
                                        const Tensor& factors, ClassRange classes, int64_t tile) {
  auto products = products_of(lane, classes);
  if (is_kept(classes)) {
    products.mul_(factors.unsqueeze(1));
  } else {
    at::mm_out(products, entering, inputs.t());
    exponentiate_again(products, factors, exponents_[tile]);
  }
  targets_.clear(products, classes);
  return products;
}

std::pair<Tensor, Tensor> ExponentialSoftmax::backward(const Tensor& features, const Tensor& weight,
                                                       const Tensor& log_sum, const Tensor& share, int64_t,
                                                       const RowUpdate& update, bool of_features) {
  const auto own_share = blocks_.padded(share);
  const Shares shares = {blocks_.padded(log_sum), own_share, at::zeros_like(own_share)};
  const auto log_sum_of_others =
      blocks_.log_weight() > 0 ? blocks_.padded(log_sum - blocks_.log_weight()) : shares.log_sum;
  Gradients gradients(blocks_, targets_, features, weight, update, of_features);
  const auto scale = at::empty_like(shares.share);
  const auto ranges = blocks_.ranges();
  const Lane lane(blocks_, features, 0, needs_lanes_products());
  for (size_t tile = 0; tile < ranges.size(); ++tile) {
    const auto classes = ranges[tile];
    const auto own_weight = blocks_.rows_of(classes).of(weight);
    const OwnRows own = {own_weight, lane.entering(own_weight)};
    const auto factors = blocks_.factors_of(classes, weight.options());
    const auto at = static_cast<int64_t>(tile);
    const auto values = exponentials(lane, own.entering, gradients.inputs(), factors, classes, at);
    scale_tile(exponents_[at], blocks_.log_weight_of(classes) > 0 ? log_sum_of_others : shares.log_sum, shares.share,
               scale);
    targets_.differentiate(shares, /*smoothing=*/0, classes);
    gradients.add(own, classes, values, scale);
  }
  kept_.reset();
  const auto of_weight = update ? Tensor() : blocks_.spread(gradients.of_weight(), weight);
  return {of_features ? gradients.of_features(features) : Tensor(), of_weight};
}

}  // namespace tandem::classifier::detail
