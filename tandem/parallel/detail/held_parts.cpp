#include "tandem/parallel/detail/held_parts.h"

#include <ATen/ATen.h>

namespace tandem::parallel::detail {

std::vector<Parameter> held_parts(const FlatLayout& layout, size_t i, const Parameter& parameter, const Tensor& shard,
                                  const ShardHolder& holder) {
  if (holder.shard < 0) return {};
  const auto sizes = parameter.tensor.sizes();
  const auto [first, last] = layout.shards_of(i);
  const int holders = last - first + 1;
  std::vector<Parameter> held;
  for (const auto& part : layout.parts(i, holder.shard)) {
    Placement placement{.splits = {}, .replica = holder.replica};
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      const Split split{static_cast<int64_t>(dim), part.box.first[dim], part.box.count[dim], sizes[dim]};
      if (split.count < split.total) placement.splits.push_back(split);
    }
    if (holders * holder.copies < holder.world) placement.holder = holder.replica * holders + holder.shard - first;
    const auto tensor = layout.part(shard, i, part).requires_grad_(parameter.tensor.requires_grad());
    held.push_back(Parameter::placed(parameter.name, tensor, placement));
  }
  return held;
}

}  // namespace tandem::parallel::detail
