#include "tandem/train/reshard.h"

#include <numeric>

namespace tandem::train {
namespace {

constexpr std::string_view kOptimizerPrefix = "optimizer.";

/// The rows of one rank.
RowRange rows_of_rank(int64_t total, int rank, int ranks, const RowSplit& split) {
  const auto counts = split(total);
  TORCH_CHECK_VALUE(counts.size() == static_cast<size_t>(ranks) &&
                        std::accumulate(counts.begin(), counts.end(), int64_t{0}) == total &&
                        std::ranges::all_of(counts, [](int64_t count) { return count >= 0; }),
                    "reshard: the split of ", total, " rows is ", at::IntArrayRef(counts), ", wanted ", ranks,
                    " counts that add up to them");
  return {std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0}), counts[rank], total};
}

/// Writes the files of all ranks.
void write_ranks(const CheckpointReader& from, CheckpointStore& to, int ranks, const RowSplit& split) {
  const auto step = from.manifest().step;
  to.begin(step);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<storage::TensorSource> tensors;
    std::map<std::string, std::string> metadata;
    for (const auto& name : from.names()) {
      const auto total = from.split_rows(name);
      if (!total && rank != 0) continue;
      if (!total) {
        tensors.push_back(from.source(name));
        continue;
      }
      const auto rows = rows_of_rank(*total, rank, ranks, split);
      const auto part = name_of_part(name, rank);
      tensors.push_back(from.source_of_rows(name, rows.first, rows.count, part));
      put_rows(metadata, part, rows);
    }
    to.write_rank(step, rank, tensors, metadata);
  }
}

}  // namespace

void reshard(const CheckpointReader& from, CheckpointStore& to, int ranks, const RowSplit& split) {
  auto manifest = from.manifest();
  manifest.world = ranks;
  manifest.files.clear();
  try {
    write_ranks(from, to, ranks, split);
    to.commit(manifest);
  } catch (...) {
    to.abandon(manifest.step);
    throw;
  }
}

void merge_weights(const CheckpointReader& from, const std::filesystem::path& path) {
  std::vector<storage::TensorSource> tensors;
  for (const auto& name : from.names()) {
    if (!name.starts_with(kOptimizerPrefix)) tensors.push_back(from.source(name));
  }
  storage::write_safetensors(path, std::span<const storage::TensorSource>(tensors),
                             {{"tandem.step", std::to_string(from.manifest().step)}});
}

}  // namespace tandem::train
