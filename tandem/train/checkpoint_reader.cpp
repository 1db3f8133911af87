#include "tandem/train/checkpoint_reader.h"

#include "tandem/base/error.h"

namespace tandem::train {
namespace {

std::vector<StoredTensors::File> files_of(const CheckpointStore& store, const storage::Manifest& manifest) {
  std::vector<StoredTensors::File> files;
  for (int rank = 0; rank < manifest.world; ++rank) {
    files.push_back({storage::rank_file_name(rank), rank, store.open_rank(manifest.step, rank)});
    const auto &found = files.back().content.header_checksum(), &wanted = manifest.files[rank].checksum;
    if (found != wanted) throw DataError(files.back().name + " has checksum " + found + ", wanted " + wanted);
  }
  return files;
}

}  // namespace

CheckpointReader::CheckpointReader(const CheckpointStore& store, int64_t step)
    : CheckpointReader(store, store.manifest(step)) {}

CheckpointReader::CheckpointReader(const CheckpointStore& store, storage::Manifest manifest)
    : StoredTensors(files_of(store, manifest)), manifest_(std::move(manifest)), card_(store.card(manifest_)) {}

}  // namespace tandem::train
