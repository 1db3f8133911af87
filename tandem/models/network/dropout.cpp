#include "tandem/models/network/dropout.h"

#include <ATen/ATen.h>

#include "tandem/models/network/sample_draws.h"

namespace tandem::models {
namespace {

void check_rate(const char* what, double rate) {
  TORCH_CHECK_VALUE(rate >= 0 && rate < 1, what, " is ", rate, ", wanted 0 or more and below 1");
}

/// 0 or 1 / (1 - rate) for each value of so many samples.
Tensor mask_of(int64_t samples, int64_t values, double rate, uint64_t stream) {
  const auto scale = static_cast<float>(1 / (1 - rate));
  constexpr double kRange = 4294967296.0;  // of a 32-bit number
  const auto threshold = static_cast<uint64_t>(rate * kRange);
  return drawn_by_sample(samples, values, stream,
                         [=](CounterRng& random) { return random.next() < threshold ? 0.0F : scale; });
}

}  // namespace

Dropout::Dropout(double rate, const std::string& name)
    : torch::nn::Module("Dropout"), rate_(rate), stream_(stream_of(name)) {
  check_rate("dropout", rate);
}

Tensor Dropout::forward(const Tensor& input) const {
  if (rate_ == 0 || !is_training() || input.numel() == 0) return input;
  const int64_t samples = input.size(0);
  const auto mask = mask_of(samples, input.numel() / samples, rate_, stream_);
  return input * mask.to(input.options()).view(input.sizes());
}

DropPath::DropPath(double rate, const std::string& name)
    : torch::nn::Module("DropPath"), rate_(rate), stream_(stream_of(name)) {
  check_rate("drop path", rate);
}

Tensor DropPath::masks(int64_t layers, int64_t samples, const at::TensorOptions& options) const {
  if (rate_ == 0 || !is_training()) return {};
  const auto masks = mask_of(samples, layers, rate_ * current_context().progress, stream_);
  return masks.t().contiguous().to(options).view({layers, samples, 1, 1, 1});
}

}  // namespace tandem::models
