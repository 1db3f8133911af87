#include "tandem/classifier/detail/class_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "tandem/classifier/detail/on_device.h"
#include "tandem/classifier/detail/score_passes.h"

namespace tandem::classifier::detail {

ClassBlocks::ClassBlocks(const Tensor& features, const Tensor& weight, const Scoring& scoring,
                         const BlockOptions& options, const ClassSample* sample)
    : scoring_(scoring),
      ids_(sample ? on_device(sample->ids, weight.device()) : Tensor()),
      num_targets_(sample ? sample->num_targets : 0),
      log_weight_(sample ? sample->log_weight : 0),
      num_samples_(features.size(0)),
      num_classes_(sample ? sample->ids.numel() : weight.size(0)),
      plan_(plan_blocks(options, scoring, num_samples_, features.size(1), num_classes_, features.scalar_type(),
                        threads_for(features), features.is_cpu())) {}

double ClassBlocks::filter() const {
  return scoring_.filter < 1.0 ? scoring_.filter * scoring_.scale : std::numeric_limits<double>::infinity();
}

bool ClassBlocks::has_radial() const {
  return !scoring_.margin.is_none() && !(scoring_.normalise_features && scoring_.normalise_weight);
}

std::vector<ClassRange> ClassBlocks::ranges() const {
  std::vector<ClassRange> ranges;
  for (int64_t begin = 0, end; begin < num_classes_; begin = end) {
    end = std::min(begin + plan_.block, begin < num_targets_ ? num_targets_ : num_classes_);
    ranges.push_back({begin, end});
  }
  return ranges;
}

Rows ClassBlocks::rows_of(ClassRange classes) const {
  return {classes.begin, classes.size(), ids_.defined() ? ids_.narrow(0, classes.begin, classes.size()) : Tensor()};
}

Tensor ClassBlocks::spread(const Tensor& gradient, const Tensor& weight) const {
  if (!ids_.defined()) return gradient;
  return at::_sparse_coo_tensor_unsafe(ids_.unsqueeze(0), gradient, weight.sizes(),
                                       gradient.options().layout(at::kSparse));
}

void ClassBlocks::measure_features(const Tensor& features, const Tensor& weight) {
  if (scoring_.normalise_features) inverse_features_ = inverse_lengths(features);
  if (scoring_.normalise_weight) inverse_weight_ = at::empty({num_classes_}, weight.options());
}

Tensor ClassBlocks::inverse_weight_of(ClassRange classes) const {
  return inverse_weight_.defined() ? inverse_weight_.narrow(0, classes.begin, classes.size()) : Tensor();
}

Tensor ClassBlocks::factors_of(ClassRange classes, const at::TensorOptions& options) const {
  return scoring_.normalise_weight ? inverse_weight_of(classes) : at::ones({classes.size()}, options);
}

Tensor ClassBlocks::directions_of(const Tensor& features) const {
  auto directions = at::zeros({plan_.columns, features.size(1)}, features.options());
  auto own = directions.narrow(0, 0, num_samples_);
  if (inverse_features_.defined()) {
    at::mul_out(own, features, (inverse_features_ * scoring_.scale).unsqueeze(1));
  } else {
    at::mul_out(own, features, at::scalar_tensor(scoring_.scale, features.options()));
  }
  return directions.to(plan_.products);
}

Tensor ClassBlocks::padded(const Tensor& numbers) const {
  auto all = at::zeros({plan_.columns}, numbers.options());
  all.narrow(0, 0, num_samples_).copy_(numbers);
  return all;
}

}  // namespace tandem::classifier::detail
