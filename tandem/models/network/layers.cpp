#include "tandem/models/network/layers.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"

namespace tandem::models {

/// Does not use Tensor::contiguous(): with one channel it would do nothing, and the following layers would take the
/// image for channels first.
Tensor laid_out(const Tensor& images) {
  const auto type = images.scalar_type();
  if (!images.device().is_cpu() || (type != at::kFloat && type != at::kBFloat16)) return images;
  const int64_t channels = images.size(1), height = images.size(2), width = images.size(3);
  auto copy = at::empty_strided(images.sizes(), {channels * height * width, 1, channels * width, channels},
                                images.options().requires_grad(false));
  return copy.copy_(images);
}

layers::Division divide(const ModelOptions& options, const std::string& layer, int64_t parts, std::string_view what) {
  static auto& alone = *comm::make_single_group().release();  // has no state, and outlives all models
  auto& group = options.tensor != nullptr ? *options.tensor : alone;
  if (parts >= group.size()) return {group, parts};
  throw SettingsError("tensor is " + std::to_string(group.size()) + " with layer " + layer + " of " + options.name +
                          " (" + std::string(what) + ": " + std::to_string(parts) + "), wanted at most " +
                          std::to_string(parts),
                      "divide the model over fewer ranks, and the batch over more");
}

void Normalization::zero_weight() {
  const at::NoGradGuard no_grad;
  if (auto* weight = named_parameters(/*recurse=*/false).find("weight")) weight->zero_();
}

std::vector<Layer::Part> Normalization::parts() const {
  std::vector<Part> parts;
  if (!channels_) return parts;
  const auto add = [&](const auto& tensors) {
    for (const auto& entry : tensors) {
      if (entry.value().dim() == 1) parts.push_back({entry.key(), entry.key(), channels_->split(0)});
    }
  };
  add(named_parameters(/*recurse=*/false));
  add(named_buffers(/*recurse=*/false));
  return parts;
}

}  // namespace tandem::models
