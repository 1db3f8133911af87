#include "tandem/models/network/drop_path.h"

#include <ATen/ATen.h>

#include "tandem/layers/sample_draws.h"

namespace tandem::models {

DropPath::DropPath(double rate, const std::string& name)
    : torch::nn::Module("DropPath"), rate_(rate), stream_(stream_of(name)) {
  layers::check_rate("drop path", rate);
}

Tensor DropPath::masks(int64_t count, int64_t samples, const at::TensorOptions& options) const {
  if (rate_ == 0 || !is_training()) return {};
  const auto masks = layers::dropping_mask(samples, {.own = count}, rate_ * current_context().progress, stream_);
  return masks.t().contiguous().to(options).view({count, samples, 1, 1, 1});
}

}  // namespace tandem::models
