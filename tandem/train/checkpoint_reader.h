#pragma once
#include "tandem/train/checkpoint_store.h"
#include "tandem/train/stored_tensors.h"

namespace tandem::train {

/// Reads the tensors of one checkpoint, whatever ranks and placements wrote it.
class CheckpointReader : public StoredTensors {
 public:
  /// Reads the manifest and the headers of all files. Throws as StoredTensors does, and DataError if a file is not the
  /// one that the manifest describes.
  CheckpointReader(const CheckpointStore& store, int64_t step);

  const storage::Manifest& manifest() const { return manifest_; }
  const std::string& card() const { return card_; }  // the text of its ModelCard; "": it has none

 private:
  CheckpointReader(const CheckpointStore& store, storage::Manifest manifest);

  storage::Manifest manifest_;
  std::string card_;
};

}  // namespace tandem::train
