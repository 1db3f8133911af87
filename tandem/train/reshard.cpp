#include "tandem/train/reshard.h"

#include <ATen/ATen.h>

#include <numeric>

#include "tandem/base/quote.h"
#include "tandem/train/detail/stored_part.h"
#include "tandem/train/model_card.h"

namespace tandem::train {
namespace {

using parallel::Placement;

/// The counts of all ranks along a dim of `total`.
std::vector<int64_t> counts_of(int64_t total, int ranks, const RowSplit& split) {
  auto counts = split(total);
  TORCH_CHECK_VALUE(counts.size() == static_cast<size_t>(ranks) &&
                        std::accumulate(counts.begin(), counts.end(), int64_t{0}) == total &&
                        std::ranges::all_of(counts, [](int64_t count) { return count >= 0; }),
                    "reshard: the split of ", total, " rows is ", at::IntArrayRef(counts), ", wanted ", ranks,
                    " counts that add up to them");
  return counts;
}

/// The sizes of a rank's part. A dim that the tensor lacks is left to check_placement().
std::vector<int64_t> sizes_of_part(const StoredTensor& tensor, const Placement& placement) {
  auto sizes = tensor.sizes;
  for (const auto& split : placement.splits) {
    if (split.dim >= 0 && split.dim < static_cast<int64_t>(sizes.size())) sizes[split.dim] = split.count;
  }
  return sizes;
}

/// What a new rank's file holds.
struct Content {
  std::vector<storage::TensorSource> tensors;
  std::map<std::string, std::string> metadata;
};

/// Adds to each rank's content its parts of one tensor.
void add_parts(const CheckpointReader& from, const std::string& name, const Layout& layout,
               std::vector<Content>& ranks) {
  const auto& tensor = from.tensor(name);
  std::vector<Box> boxes;
  std::vector<std::string> places;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    int num_parts = 0;
    for (const auto& placement : layout(name, tensor, rank)) {
      if (!placement.counts_on(rank)) continue;
      const auto sizes = sizes_of_part(tensor, placement);
      parallel::check_placement("reshard: tensor " + quote(name), placement, sizes);
      const auto stored = placement.splits.empty() ? name : detail::name_of_part(name, rank, num_parts++);
      boxes.push_back(placement.box(sizes));
      places.push_back("rank " + std::to_string(rank));
      ranks[rank].tensors.push_back(from.source(name, boxes.back(), stored));
      detail::put_splits(ranks[rank].metadata, stored, placement.splits);
    }
  }
  const auto fault = tiling_fault(tensor.sizes, boxes, places);
  TORCH_CHECK_VALUE(!fault, "reshard: tensor ", quote(name), " ", *fault);
}

}  // namespace

Layout along_same_dim(int ranks, RowSplit split) {
  return [=](const std::string&, const StoredTensor& tensor, int rank) -> std::vector<Placement> {
    if (tensor.split_dims.empty()) return {Placement()};
    const auto dim = *tensor.split_dims.begin();
    const auto total = tensor.sizes[dim];
    const auto counts = counts_of(total, ranks, split);
    const auto first = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
    return {Placement{.splits = {{dim, first, counts[rank], total}}}};
  };
}

void reshard(const CheckpointReader& from, CheckpointStore& to, int ranks, const Layout& layout) {
  auto manifest = from.manifest();
  manifest.world = ranks;
  manifest.files.clear();
  std::vector<Content> contents(ranks);
  for (const auto& name : from.names()) add_parts(from, name, layout, contents);
  try {
    to.begin(manifest.step);
    for (int rank = 0; rank < ranks; ++rank) {
      to.write_rank(manifest.step, rank, contents[rank].tensors, contents[rank].metadata);
    }
    to.commit(manifest, from.card());
  } catch (...) {
    to.abandon(manifest.step);
    throw;
  }
}

void merge_weights(const CheckpointReader& from, const std::filesystem::path& path) {
  std::vector<storage::TensorSource> tensors;
  for (const auto& name : from.names()) {
    if (is_state_name(name) && name != kClassNames) continue;
    tensors.push_back(from.source(name, whole_box(from.tensor(name).sizes), name));
  }
  std::map<std::string, std::string> metadata = {{"tandem.step", std::to_string(from.manifest().step)}};
  if (!from.card().empty()) metadata[kCardKey] = from.card();
  storage::write_safetensors(path, std::span<const storage::TensorSource>(tensors), metadata);
}

}  // namespace tandem::train
