#pragma once
#include <filesystem>
#include <functional>

#include "tandem/train/checkpoint_reader.h"

namespace tandem::train {

/// How many of so many rows each rank gets.
using RowSplit = std::function<std::vector<int64_t>(int64_t rows)>;

/// Writes a checkpoint anew, as `ranks` ranks would have written it: what was split is split by `split`, the
/// optimizer's state with it. The values stay bit for bit. Memory: the largest part of a tensor in one old file. A
/// failure leaves nothing of the new checkpoint. Throws as CheckpointStore does; c10::ValueError for a split that does
/// not add up.
void reshard(const CheckpointReader& from, CheckpointStore& to, int ranks, const RowSplit& split);

/// Writes the weights and buffers, each whole, into one safetensors file: without the optimizer's state, for whoever
/// serves the model. Memory: as reshard().
/// Throws as write_safetensors does.
void merge_weights(const CheckpointReader& from, const std::filesystem::path& path);

}  // namespace tandem::train
