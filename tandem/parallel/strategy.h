#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "tandem/base/category.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tandem/parallel/gradient_sync.h"

namespace tandem::parallel {

/// The options of all strategies; each reads its own member.
struct StrategyOptions {
  DistributedDataParallelOptions ddp;
};

/// A way to train in parallel: a file with a GradientSync and its options, a member of StrategyOptions, and a row of
/// strategies().
struct Strategy {
  std::string_view name;   // as the setting `parallel` spells it
  std::string_view title;  // in words, for messages
  std::string_view doc;    // what each rank holds, for the settings' table

  /// Makes the strategy for the parameters that all ranks hold whole; others are left to their layers. The
  /// group, the data axis, must outlive the result. Collective.
  std::unique_ptr<GradientSync> (*make)(const std::vector<Parameter>& parameters, const std::vector<Tensor>& buffers,
                                        comm::ProcessGroup& data, const StrategyOptions& options);

  /// The bytes that a rank holds for it between and during steps, besides what one device needs. `parameter_bytes`: of
  /// the replicated parameters that are trained; `ranks`: of the data axis.
  CategoryBytes (*bytes)(int64_t parameter_bytes, int ranks, const StrategyOptions& options);
};

/// All strategies; the first is the default.
std::span<const Strategy> strategies();

/// Throws SettingsError (unknown name), naming `parallel`.
const Strategy& strategy_of(std::string_view name);

}  // namespace tandem::parallel
