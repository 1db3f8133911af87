#pragma once
#include <filesystem>
#include <functional>

#include "tandem/train/checkpoint_reader.h"

namespace tandem::train {

/// What one rank holds of a tensor of a checkpoint: one placement a part, or none. `rank`: of the new checkpoint.
using Layout =
    std::function<std::vector<parallel::Placement>(const std::string& name, const StoredTensor& tensor, int rank)>;

/// Returns how many of `rows` rows each rank gets.
using RowSplit = std::function<std::vector<int64_t>(int64_t rows)>;

/// The layout that splits each tensor over `ranks` ranks along the first dim along which it is split now, by `split`.
/// Whole tensors stay whole, in the file of rank 0. It throws c10::ValueError if a split does not add up.
Layout along_same_dim(int ranks, RowSplit split);

/// Rewrites a checkpoint as `ranks` ranks with the placements `layout` would have written it, the optimizer's state
/// too. The values stay the same bit for bit. Memory: the largest part of a tensor in one old file, and the largest new
/// part that joins pieces of several along another dim than the first. A failure leaves no new checkpoint behind.
/// Throws as CheckpointStore does, and c10::ValueError if the new parts do not hold each element of a tensor exactly
/// once.
void reshard(const CheckpointReader& from, CheckpointStore& to, int ranks, const Layout& layout);

/// Writes the weights and buffers, each merged, to one safetensors file, without the optimizer state, for serving the
/// model, with the model card. Memory: as reshard(); a tensor that is split along another dim than the first counts
/// whole. Throws as write_safetensors().
void merge_weights(const CheckpointReader& from, const std::filesystem::path& path);

}  // namespace tandem::train
