#include "tandem/layers/hybrid.h"

#include "tandem/comm/collectives.h"

namespace tandem::layers {

Tensor to_model_parallel(const Tensor& x, const Division& channels, std::span<const int64_t> samples) {
  return comm::all_to_all(x, channels.group(), /*split_dim=*/1, /*concat_dim=*/0, channels.counts(), samples);
}

Tensor to_data_parallel(const Tensor& x, const Division& channels, std::span<const int64_t> samples) {
  return comm::all_to_all(x, channels.group(), /*split_dim=*/0, /*concat_dim=*/1, samples, channels.counts());
}

}  // namespace tandem::layers
