#include "tandem/parallel/strategy.h"

#include <algorithm>
#include <array>

#include "tandem/base/error.h"

namespace tandem::parallel {
namespace {

std::unique_ptr<GradientSync> make_ddp(const std::vector<Parameter>& parameters, const std::vector<Tensor>& buffers,
                                       comm::ProcessGroup& data, const StrategyOptions& options) {
  std::vector<Tensor> tensors;
  std::vector<std::string> names;
  for (const auto& parameter : parameters) {
    if (!parameter.placement.is_everywhere()) continue;
    tensors.push_back(parameter.tensor);
    names.push_back(parameter.name);
  }
  return std::make_unique<DistributedDataParallel>(tensors, buffers, names, data, options.ddp);
}

CategoryBytes ddp_bytes(int64_t parameter_bytes, int ranks, const StrategyOptions&) {
  CategoryBytes bytes{};
  if (ranks > 1) bytes[static_cast<size_t>(Category::gradients)] = parameter_bytes;  // the buckets
  return bytes;
}

constexpr std::array<Strategy, 1> kStrategies = {
    {{"ddp", "data parallel", "each rank holds the whole backbone, and gradients are summed during backward", make_ddp,
      ddp_bytes}}};

}  // namespace

std::span<const Strategy> strategies() { return kStrategies; }

const Strategy& strategy_of(std::string_view name) {
  const auto at = std::ranges::find(kStrategies, name, &Strategy::name);
  if (at != kStrategies.end()) return *at;
  std::string names;
  for (const auto& strategy : kStrategies) names += (names.empty() ? "" : ", ") + std::string(strategy.name);
  throw SettingsError("parallel is '" + std::string(name) + "', wanted one of " + names);
}

}  // namespace tandem::parallel
