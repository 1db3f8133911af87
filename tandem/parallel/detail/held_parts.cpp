#include "tandem/parallel/detail/held_parts.h"

#include <ATen/ATen.h>

namespace tandem::parallel::detail {

std::vector<Parameter> held_parts(const FlatLayout& layout, size_t i, const Parameter& parameter, const Tensor& shard,
                                  const ShardHolders& all) {
  const int own = all.own - all.first;
  if (own < 0) return {};
  const auto [first, last] = layout.shards_of(i);
  const Placement::Holders holders = {Axis::shard, all.first + first, all.first + last, all.own, all.size};
  std::vector<Parameter> held;
  for (const auto& part : layout.parts(i, own)) {
    const auto tensor = layout.part(shard, i, part).requires_grad_(parameter.tensor.requires_grad());
    const auto placement = parameter.placement.of_box(part.box, parameter.tensor.sizes(), holders);
    held.push_back(Parameter::placed(parameter.name, tensor, placement));
  }
  return held;
}

void check_divisible(std::string_view who, const std::vector<Parameter>& parameters) {
  check_each_once(who, parameters);
  for (const auto& [name, tensor, placement] : parameters) {
    TORCH_CHECK_VALUE(tensor.numel() > 0 || !tensor.requires_grad(), who, ": ", name, " is empty, wanted numbers to ",
                      "divide: freeze it with requires_grad_(false)");
  }
}

std::vector<Parameter> replace_by_parts(std::vector<Parameter> parameters, const PartsOf& parts) {
  std::vector<Parameter> result;
  for (auto& parameter : parameters) {
    if (const auto* own = parts.find(parameter.tensor)) {
      result.insert(result.end(), own->begin(), own->end());
    } else {
      result.push_back(std::move(parameter));
    }
  }
  return result;
}

}  // namespace tandem::parallel::detail
