#include "tandem/classifier/detail/whole_softmax.h"

#include <ATen/ATen.h>

#include "tandem/classifier/detail/block_gradients.h"
#include "tandem/classifier/detail/score_passes.h"

namespace tandem::classifier::detail {

WholeSoftmax::WholeSoftmax(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                           const Scoring& scoring)
    : blocks_(features, weight, scoring, BlockOptions(), nullptr),
      targets_(targets, first, features, weight, scoring) {}

Tensor WholeSoftmax::forward(const Tensor& features, const Tensor& weight) {
  blocks_.measure_features(features, weight);
  if (auto inverse = blocks_.inverse_weight_of(all()); inverse.defined()) inverse.copy_(inverse_lengths(weight));
  const auto factors = blocks_.factors_of(all(), weight.options());
  products_ = at::empty({blocks_.num_classes(), blocks_.plan().columns}, features.options());
  at::mm_out(products_, weight, blocks_.directions_of(features).t());
  auto scores = products_ * factors.unsqueeze(1);
  if (blocks_.scoring().filter < 1.0) scores.masked_fill_(scores.gt(blocks_.filter()), 0);
  targets_.score(products_, factors, all(), blocks_.scoring());
  targets_.put_values(scores, at::ones_like(factors), all(), /*leaves_out=*/false);
  return scores.narrow(1, 0, blocks_.num_samples()).contiguous();
}

std::pair<Tensor, Tensor> WholeSoftmax::backward(const Tensor& features, const Tensor& weight, const Tensor& gradient) {
  TORCH_CHECK(products_.defined(), "softmax loss: backward ran twice, wanted once: its buffer is used up by the first");
  const auto factors = blocks_.factors_of(all(), weight.options()).unsqueeze(1);
  const RowUpdate none;
  BlockGradients gradients(blocks_, targets_, features, weight, 1, none);
  auto of_scores = at::zeros_like(products_);
  of_scores.narrow(1, 0, blocks_.num_samples()).copy_(gradient);
  targets_.read_gradients(of_scores, all());
  targets_.clear(of_scores, all());
  targets_.clear(products_, all());
  const auto scores = products_ * factors;
  if (blocks_.scoring().filter < 1.0) of_scores.masked_fill_(scores.gt(blocks_.filter()), 0);
  gradients.along_samples(0).copy_((of_scores * scores).sum({0}));
  auto along = (of_scores * scores).sum({1});
  auto products = of_scores.mul_(factors);
  gradients.add(0, {weight, weight}, all(), products, along);
  products_.reset();
  return {gradients.of_features(features), gradients.of_weight()};
}

}  // namespace tandem::classifier::detail
