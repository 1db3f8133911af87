#include "tandem/job/sections/combinations.h"

#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"
#include "tandem/job/job.h"
#include "tandem/models/model.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

using parallel::Axis;

bool has_shard(const Job& job) { return job.parallel.shard > 1; }
bool has_tensor(const Job& job) { return job.parallel.tensor > 1; }
bool has_pipeline(const Job& job) { return job.parallel.pipeline > 1; }

template <Axis axis>
bool strategy_lacks(const Job& job) {
  return !job.parallel.strategy->axes.has(axis);
}

template <Axis axis>
bool model_lacks(const Job& job) {
  return !models::axes_of(job.model.name).has(axis);
}

/// "parallel=zero1, parallel=zero2 or parallel=fsdp": the strategies that have a flag, as a remedy names them.
template <class Has>
std::string strategies_with(const Has& has) {
  std::vector<std::string> names;
  for (const auto& strategy : parallel::strategies()) {
    if (has(strategy)) names.push_back("parallel=" + std::string(strategy.name));
  }
  return one_of(names);
}

std::vector<Combination> all_combinations() {
  const auto leave_out = [](const std::string& key) { return "leave " + key + " out"; };
  const auto sharding = strategies_with([](const auto& strategy) { return strategy.axes.has(Axis::shard); });
  return {
      {"mesh.shard", "parallel=", has_shard, strategy_lacks<Axis::shard>, "which divides no parameters, wanted 0",
       leave_out("mesh.shard") + ", or use " + sharding},
      {"mesh.tensor", "parallel=", has_tensor, strategy_lacks<Axis::tensor>,
       "whose ranks are threads of one process, wanted 1", "use parallel=ddp"},
      {"mesh.pipeline", "parallel=", has_pipeline, strategy_lacks<Axis::pipeline>,
       "whose ranks are threads of one process, wanted 1", "use parallel=ddp"},
      {"mesh.tensor", "model=", has_tensor, model_lacks<Axis::tensor>, "which is not divided along tensor, wanted 1",
       leave_out("mesh.tensor") + ", and use parallel=ddp or another"},
      {"mesh.pipeline", "model=", has_pipeline, model_lacks<Axis::pipeline>,
       "which is not divided along pipeline, wanted 1",
       leave_out("mesh.pipeline") + ", and use parallel=ddp or another"},
  };
}

std::string told(const Job& job, std::string_view key) {
  return std::string(key) + settings::format_value(job.settings.get(key.substr(0, key.find('='))));
}

}  // namespace

std::span<const Combination> combinations() {
  static const auto all = all_combinations();
  return all;
}

void check_combinations(const Job& job) {
  for (const auto& row : combinations()) {
    const bool has_value = row.other.ends_with('=');
    const auto other = has_value ? row.other.substr(0, row.other.size() - 1) : row.other;
    if (!row.is_asked(job) || !row.cannot(job) || is_idle(job, row.key) || is_idle(job, other)) continue;
    throw SettingsError(std::string(row.key) + " is " + settings::format_value(job.settings.get(row.key)) + " with " +
                            (has_value ? told(job, row.other) : std::string(other)) + ", " + std::string(row.why),
                        row.remedy);
  }
}

}  // namespace tandem::job
