#include "tandem/job/sections/combinations.h"

#include <algorithm>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/mesh.h"
#include "tandem/job/sections/pipeline.h"
#include "tandem/models/model.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

using parallel::Axis;

bool clips(const Job& job) { return job.training.clip > 0; }
bool averages_weights(const Job& job) { return job.training.ema > 0; }
bool accumulates(const Job& job) { return job.training.accumulate > 1; }
bool skips_steps(const Job& job) { return job.training.skip_nonfinite > 0; }
bool scales_loss(const Job& job) { return job.training.loss_scale.has_value(); }
bool moves_scale(const Job& job) { return scales_loss(job) && job.training.loss_scale->is_dynamic; }
bool sums_in_order(const Job& job) { return job.training.shards > 0; }
/// The limit of a search says which plans fit, and moves no classes.
bool is_limited(const Job& job) { return job.memory.is_limited() && !needs_search(job); }

bool samples(const Job& job) { return job.settings.get_float("head.sample") < 1; }
bool smooths(const Job& job) { return job.settings.get_float("head.smoothing") > 0; }
bool updates_in_backward(const Job& job) { return job.head.steps_in_backward; }
bool moves_all_rows(const Job& job) { return job.head.moves_all_rows; }
bool head_is_whole(const Job& job) { return job.head.form->is_whole; }
bool head_is_split(const Job& job) { return !head_is_whole(job); }
bool head_lacks_order(const Job& job) { return !job.head.form->sums_in_order; }
bool shares_statistics(const Job& job) { return models::shares_statistics(job.model.norm); }
bool optimizer_is_not_sgd(const Job& job) { return job.optimizer.kind != train::OptimizerKind::sgd; }

/// The head's classes are on several ranks, of which some hold the same.
bool head_has_copies(const Job& job) {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  return head_is_split(job) && sizes.size(job.head.over) * sizes.pipeline < job.parallel.ranks;
}

const parallel::GradientHookKind& hook_of(const Job& job) { return job.parallel.strategy_options.ddp.hook_kind(); }
bool has_hook(const Job& job) { return &hook_of(job) != &parallel::gradient_hooks().front(); }
bool hook_goes_apart(const Job& job) { return hook_of(job).goes_apart; }
bool hook_keeps_errors(const Job& job) { return hook_of(job).keeps_errors; }

bool is_async(const Job& job) { return job.parallel.is_async; }
bool ends_late(const Job& job) { return is_async(job) && job.parallel.strategy_options.ps.staleness > 0; }
bool has_replicas(const Job& job) { return job.parallel.strategy->is_one_process && job.parallel.parts() > 1; }
bool is_traced(const Job& job) { return job.run.traced != Traced::nothing; }
bool strategy_lacks_order(const Job& job) { return !job.parallel.strategy->sums_in_order; }

/// Of what the ranks along shard divide.
bool has_copies(const Job& job) {
  return job.parallel.strategy->axes.has(Axis::shard) && job.parallel.mesh(job.parallel.ranks).data > 1;
}

bool has_shard(const Job& job) { return job.parallel.shard > 1; }
bool has_tensor(const Job& job) { return job.parallel.tensor > 1; }
bool has_pipeline(const Job& job) { return job.parallel.pipeline > 1; }

bool strategy_sums_in_backward(const Job& job) { return !job.parallel.strategy->takes_gradients; }
bool keeps_neighbours(const Job& job) {
  return job.parallel.strategy->settings == "fsdp" && job.parallel.strategy_options.fsdp.reshard > 0;
}
bool has_budget(const Job& job) { return job.memory.recompute->has_budget; }
bool has_auxiliary(const Job& job) { return job.model.auxiliary > 0; }

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

constexpr const char* kTakesBack = "which takes a step back when later ones have begun";
constexpr const char* kLacksOrder = "which cannot sum over shards in their order";

std::vector<Combination> all_combinations() {
  const auto leave_out = [](const std::string& key) { return "leave " + key + " out"; };
  const std::string one_of_them = leave_out("one of them");
  const auto sharding = strategies_with([](const auto& strategy) { return strategy.axes.has(Axis::shard); });
  const auto summing = strategies_with([](const auto& strategy) { return strategy.takes_gradients; });
  const auto in_order = strategies_with([](const auto& strategy) { return strategy.sums_in_order; });
  return {
      {"model.norm", "parallel=", shares_statistics, has_replicas, "whose replicas share no statistics",
       "use model.norm=batch, or parallel=ddp"},

      {"trace.blocks", "parallel=", is_traced, has_replicas, "whose replicas run the blocks on threads of their own",
       "use parallel=ddp"},
      {"trace.blocks", "ps.mode", is_traced, is_async, "whose ranks are not at the same step", "use ps.mode=sync"},

      {"ddp.hook", "train.shards", has_hook, sums_in_order, "which sums over shards in their order", one_of_them},
      {"ddp.hook", "train.precision=", hook_keeps_errors, moves_scale,
       "whose scale of the loss changes what the hook keeps of earlier steps",
       "set train.loss_scale to a number, or use train.precision=bf16"},
      {"ddp.hook", "train.skip_nonfinite", hook_keeps_errors, skips_steps,
       "whose skipped steps would remain in what the hook keeps", one_of_them},

      {"ps.mode", "head.parallel=", is_async, head_is_split, "for which all ranks meet in each step",
       "use head.parallel=replicated, or ps.mode=sync"},
      {"ps.mode", "mesh.tensor", is_async, has_tensor, "whose ranks must have the same weights", "use ps.mode=sync"},
      {"ps.mode", "train.skip_nonfinite", ends_late, skips_steps, kTakesBack,
       leave_out("train.skip_nonfinite") + ", or use ps.staleness=0"},
      {"ps.mode", "train.precision=", ends_late, scales_loss, kTakesBack,
       leave_out("train.precision=float16") + ", or use ps.staleness=0"},

      {"head.sample", "head.parallel=", samples, head_is_whole, "which scores all classes, wanted 1", one_of_them},
      {"head.sample", "head.smoothing", samples, smooths, "which is over all classes", one_of_them},
      {"head.sample", "head.over=", samples, divides_head, "whose ranks score all classes of a micro-batch",
       "use head.over=last"},
      {"head.lazy", "train.optimizer=", moves_all_rows, optimizer_is_not_sgd, "wanted sgd",
       leave_out("head.lazy") + ": rows that a step leaves out then stay as they are"},

      {"train.ema", "head.lazy", averages_weights, moves_all_rows, "whose rows move late", one_of_them},
      {"train.clip", "head.fused_update", clips, updates_in_backward,
       "whose steps are done before the norm of all gradients is known", one_of_them},
      {"train.precision", "head.fused_update", scales_loss, updates_in_backward,
       "which moves some classes before all gradients are known and divided by the scale of the loss", one_of_them},
      {"train.skip_nonfinite", "head.fused_update", skips_steps, updates_in_backward,
       "which has moved some classes before the fault is seen", one_of_them},
      {"train.accumulate", "head.fused_update", accumulates, updates_in_backward,
       "whose steps are done before all micro-batches are known", one_of_them},
      {"train.accumulate", "head.sample", accumulates, samples,
       "whose classes would differ from one micro-batch to the next", one_of_them},

      {"train.shards", "parallel=", sums_in_order, strategy_lacks_order, kLacksOrder, "use " + in_order},
      {"train.shards", "mesh.shard", sums_in_order, has_copies, "whose copies sum on their own", one_of_them},
      {"train.shards", "mesh.tensor", sums_in_order, has_tensor, "whose ranks have no shards of their own",
       one_of_them},
      {"train.shards", "mesh.pipeline", sums_in_order, has_pipeline, "whose ranks have no shards of their own",
       one_of_them},
      {"train.shards", "train.accumulate", sums_in_order, accumulates, "and each shard is a micro-batch already",
       leave_out("train.accumulate")},
      {"train.shards", "model.norm=", sums_in_order, shares_statistics, "whose statistics are of all ranks",
       "use a norm of one rank"},
      {"train.shards", "head.parallel=", sums_in_order, head_lacks_order, kLacksOrder,
       "use head.parallel=sharded or replicated"},
      {"train.shards", "head.sample", sums_in_order, samples, "which leaves classes of a shard out", one_of_them},
      {"train.shards", "head.fused_update", sums_in_order, updates_in_backward,
       "whose steps are done before all shards are known", one_of_them},
      {"train.shards", "memory.limit", sums_in_order, is_limited, "which moves classes between ranks", one_of_them},

      {"memory.limit", "head.over=", is_limited, head_has_copies, "whose copies hold the same classes",
       "use head.over=all"},

      {"mesh.shard", "parallel=", has_shard, strategy_lacks<Axis::shard>, "which divides no parameters, wanted 0",
       leave_out("mesh.shard") + ", or use " + sharding},
      {"mesh.tensor", "parallel=", has_tensor, strategy_lacks<Axis::tensor>,
       "whose ranks are threads of one process, wanted 1", "use parallel=ddp"},
      {"mesh.tensor", "model=", has_tensor, model_lacks<Axis::tensor>, "whose layer stem is not divided along tensor",
       leave_out("mesh.tensor") + ", and use parallel=ddp or another"},
      {"mesh.pipeline", "parallel=", has_pipeline, strategy_sums_in_backward,
       "whose ranks do not sum a stage's gradients", "use " + summing},
      {"mesh.pipeline", "ddp.hook", has_pipeline, hook_goes_apart, "whose ranks train apart", "use another ddp.hook"},
      {"mesh.pipeline", "fsdp.reshard", has_pipeline, keeps_neighbours,
       "which keeps blocks between micro-batches, wanted 0", leave_out("fsdp.reshard")},
      {"mesh.pipeline", "recompute=", has_pipeline, has_budget, "whose budget is of one stage",
       "use recompute=all, sqrt or log"},
      {"mesh.pipeline", "trace.blocks", has_pipeline, is_traced, "which follows one stage", one_of_them},
      {"mesh.pipeline", "memory.limit", has_pipeline, is_limited, "which moves classes between ranks",
       one_of_them + ", or use pipeline.schedule=fit"},
      {"mesh.pipeline", "head.fused_update", has_pipeline, updates_in_backward,
       "whose steps are done before all micro-batches are known", one_of_them},
      {"mesh.pipeline", "model.auxiliary", has_pipeline, has_auxiliary, "whose classifier stands in the middle",
       one_of_them},
      {"mesh.pipeline", "model=", has_pipeline, model_lacks<Axis::pipeline>, "which is not divided along pipeline",
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
    const auto key = setting_of_axis(job, row.key);
    throw SettingsError(std::string(key) + " is " + settings::format_value(job.settings.get(key)) + " with " +
                            (has_value ? told(job, row.other) : std::string(other)) + ", " + std::string(row.why),
                        row.remedy);
  }
}

}  // namespace tandem::job
