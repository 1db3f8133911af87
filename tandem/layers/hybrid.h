#pragma once
#include <span>

#include "tandem/base/tensor.h"
#include "tandem/layers/division.h"

/// From data parallel to model parallel and back, in the middle of a network: the ranks of a group have samples of
/// their own and all channels, or all samples and channels of their own.
///
///   rank 0: A0 A1 | A2         to_model_parallel         rank 0: A0 A1      rank 1: A2
///   rank 1: B0 B1 | B2        ◀──── and back ────▶               B0 B1              B2
///
/// Each is the other's inverse and its gradient: the loss is the sum of the ranks' losses, as in
/// tandem/comm/collectives.h. One all_to_all, with a permutation that puts samples and channels into their order.
/// Wire: (N - 1) / N of the tensor. Collective, in backward too.
namespace tandem::layers {

/// [n_r, channels, ...] to [n, channels of this rank, ...]. `samples`: n_r of each rank; without it the ranks exchange
/// them, 8 bytes each.
Tensor to_model_parallel(const Tensor& x, const Division& channels, std::span<const int64_t> samples = {});

/// [n, channels of this rank, ...] to [n_r, channels, ...]. `samples`: by default comm::split_sizes(n).
Tensor to_data_parallel(const Tensor& x, const Division& channels, std::span<const int64_t> samples = {});

}  // namespace tandem::layers
