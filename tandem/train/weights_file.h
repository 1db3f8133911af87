#pragma once
#include <filesystem>

#include "tandem/train/parameter.h"
#include "tandem/train/stored_tensors.h"

namespace tandem::train {

/// The file that a user's path to weights leads to, which open_weights() takes: the file itself; in a folder with
/// `model.safetensors.index.json` or `model.safetensors`, that one; in a run's folder, the index of its newest whole
/// checkpoint, or of its best if the path names that. Logs a warning for each checkpoint that is skipped. Throws
/// DataError, which begins with "weights is", if there is none, or if the file is a pickle.
std::filesystem::path locate_weights(const std::filesystem::path& path);

/// Opens weights that any program wrote: one safetensors file, or those of an index (`*.json`). Throws as
/// SafetensorsFile and StoredTensors do, and DataError if a file lacks a tensor that the index says is there.
StoredTensors open_weights(const std::filesystem::path& file);

/// Fills the parts of all weights that this rank holds from such a path. Not collective. Memory and exceptions: as
/// fill_weights() and match_weights() (starting_weights.h) without roles, and as the functions above.
void load_weights(const std::filesystem::path& path, const std::vector<Parameter>& weights);

}  // namespace tandem::train
