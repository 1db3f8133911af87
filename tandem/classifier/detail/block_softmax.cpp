#include "tandem/classifier/detail/block_softmax.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tandem/classifier/detail/block_gradients.h"
#include "tandem/classifier/detail/feature_sums.h"
#include "tandem/classifier/detail/lane.h"

namespace tandem::classifier::detail {

OwnSoftmax::OwnNumbers BlockSoftmax::forward_with(FeatureSums* sums, const Tensor& features, const Tensor& weight) {
  const auto& plan = blocks_.plan();
  const auto& scoring = blocks_.scoring();
  blocks_.measure_features(features, weight);
  const auto directions = blocks_.directions_of(features);
  begin_to_keep(features);
  if (blocks_.is_rounded()) targets_.multiply(blocks_, features, weight);
  const bool has_others = blocks_.log_weight() > 0;
  auto running = start_running(features, plan.lanes, plan.columns, scoring.smoothing > 0);
  auto others = has_others ? start_running(features, plan.lanes, plan.columns, false) : Running();
  for_each_block(blocks_, features, needs_lanes_products(), [&](const Lane& lane, ClassRange classes) {
    const auto own_weight = blocks_.rows_of(classes).of(weight);
    auto products = products_of(lane, classes);
    const auto entering = lane.measure(own_weight, blocks_.inverse_weight_of(classes));
    at::mm_out(products, entering, directions.t());
    const auto factors = blocks_.factors_of(classes, weight.options());
    targets_.score(blocks_.is_rounded() ? Tensor() : products, factors, classes, scoring);
    auto of_sums = sums != nullptr && std::isfinite(blocks_.filter()) ? products.clone() : products;
    drop_above(products, factors, blocks_.filter());
    targets_.put_values(products, factors, classes, /*leaves_out=*/blocks_.is_rounded());
    add_block(products, factors, lane.index(), blocks_.log_weight_of(classes) > 0 ? others : running);
    if (sums == nullptr) return;
    sums->add(lane.index(), entering, of_sums, factors, running.maximum[lane.index()], targets_, classes);
  });
  auto merged = merge_lanes(running);
  if (has_others) add_others(merged, merge_lanes(others), blocks_.log_weight());
  if (blocks_.is_rounded()) targets_.add_left_out(merged);
  if (sums != nullptr) sums->end(merged.maximum);
  return numbers_of(merged);
}

std::pair<Tensor, Tensor> BlockSoftmax::backward(const Tensor& features, const Tensor& weight, const Tensor& log_sum,
                                                 const Tensor& share, int64_t classes, const RowUpdate& update,
                                                 bool of_features) {
  const double smoothing = blocks_.scoring().smoothing;
  const auto floor = share * (smoothing / static_cast<double>(classes));
  const Shares shares = {blocks_.padded(log_sum), blocks_.padded(share), blocks_.padded(floor)};
  Shares of_others = shares;
  if (blocks_.log_weight() > 0) of_others.log_sum = blocks_.padded(log_sum - blocks_.log_weight());
  BlockGradients gradients(blocks_, targets_, features, weight, blocks_.plan().lanes, update, of_features);
  for_each_block(blocks_, features, needs_lanes_products(), [&](const Lane& lane, ClassRange range) {
    const auto own_weight = blocks_.rows_of(range).of(weight);
    const OwnRows own = {own_weight, lane.entering(own_weight)};
    auto products = products_of(lane, range);
    if (!is_kept(range)) at::mm_out(products, own.entering, gradients.inputs().t());
    targets_.clear(products, range);
    auto along = differentiate_block(products, blocks_.factors_of(range, weight.options()), blocks_.filter(),
                                     blocks_.log_weight_of(range) > 0 ? of_others : shares,
                                     gradients.along_samples(lane.index()));
    targets_.differentiate(shares, smoothing, range);
    gradients.add(lane.index(), own, range, products, along);
  });
  kept_.reset();
  const auto of_weight = update ? Tensor() : blocks_.spread(gradients.of_weight(), weight);
  return {of_features ? gradients.of_features(features) : Tensor(), of_weight};
}

}  // namespace tandem::classifier::detail
