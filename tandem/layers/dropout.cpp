#include "tandem/layers/dropout.h"

#include <ATen/ATen.h>

#include "tandem/base/value_observer.h"
#include "tandem/layers/sample_draws.h"

namespace tandem::layers {

Dropout::Dropout(double rate, const std::string& name, const std::optional<Divided>& divided)
    : torch::nn::Module("Dropout"), rate_(rate), stream_(stream_of(name)), divided_(divided) {
  check_rate("dropout", rate);
}

Tensor Dropout::forward(const Tensor& input) const {
  if (rate_ == 0 || !is_training() || input.numel() == 0) return input;
  const int64_t samples = input.size(0);
  if (auto* observer = value_observer()) {
    observer->drawn("dropout", input, divided_ ? &divided_->parts.group() : nullptr);
  }
  SampleValues values = {.own = input.numel() / samples};
  if (divided_) {
    const auto& [dim, parts] = *divided_;
    TORCH_CHECK_VALUE(dim > 0 && dim < input.dim() && input.size(dim) == parts.count(), "dropout: input is ",
                      input.sizes(), ", wanted ", parts.count(), " along dim ", dim);
    const auto after_dim = c10::multiply_integers(input.sizes().slice(dim + 1));
    values = {.rows = values.own / (parts.count() * after_dim),
              .before = parts.first() * after_dim,
              .own = parts.count() * after_dim,
              .after = (parts.total() - parts.first() - parts.count()) * after_dim};
  }
  const auto mask = dropping_mask(samples, values, rate_, stream_);
  return input * mask.to(input.options()).view(input.sizes());
}

}  // namespace tandem::layers
