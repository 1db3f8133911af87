#pragma once
#include <filesystem>
#include <functional>

#include "tandem/train/checkpoint_reader.h"

namespace tandem::train {

/// Returns how many of `rows` rows each rank gets.
using RowSplit = std::function<std::vector<int64_t>(int64_t rows)>;

/// Rewrites a checkpoint as `ranks` ranks would have written it: split tensors, and their optimizer state, are split by
/// `split`. The values stay the same bit for bit. Memory: the largest part of a tensor in one old file. A failure
/// leaves no new checkpoint behind. Throws as CheckpointStore does, and c10::ValueError if a split does not add up.
void reshard(const CheckpointReader& from, CheckpointStore& to, int ranks, const RowSplit& split);

/// Writes the weights and buffers, each merged, to one safetensors file, without the optimizer state, for serving the
/// model. Memory: as reshard(). Throws as write_safetensors().
void merge_weights(const CheckpointReader& from, const std::filesystem::path& path);

}  // namespace tandem::train
