#pragma once
#include <memory>
#include <numeric>
#include <vector>

#include "tandem/parallel/mesh.h"

namespace tandem::parallel::detail {

/// The ranks among which parameters are divided.
///
///   6 ranks, 3 neighbours   0 1 2 | 3 4 5     for forward a block is gathered from all 6,
///                                             and for backward from the 3 that keep thirds of it
struct GatherGroups {
  /// `neighbours`: a divisor of the ranks along the shard axis. `is_early`: gathers also run beside others, on another
  /// thread. Collective.
  GatherGroups(Mesh& mesh, int neighbours, bool is_early) : all(mesh.group(Axis::shard)) {
    if (neighbours > 1 && neighbours < all.size()) {
      std::vector<int> ranks(static_cast<size_t>(neighbours));
      std::iota(ranks.begin(), ranks.end(), all.rank() / neighbours * neighbours);
      near = all.split(all.rank() / neighbours, ranks);
    }
    if (!is_early || all.size() == 1) return;
    all_beside = private_channel(all);
    if (near) near_beside = private_channel(*near);
  }

  comm::ProcessGroup& all;
  std::unique_ptr<comm::ProcessGroup> near;  // null: blocks are divided among all, also between forward and backward
  std::unique_ptr<comm::ProcessGroup> all_beside, near_beside;
};

}  // namespace tandem::parallel::detail
