#include "tandem/job/sections/mesh.h"

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/naming.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"

// How many ranks stand along the axes of the mesh. Those along data follow.
namespace tandem::job {
namespace {

using parallel::Axes;
using parallel::Axis;

struct AxisSetting {
  Axis axis;
  std::string_view key;
  int Parallel::*size;
};

constexpr std::array<AxisSetting, 3> kAxes = {{{Axis::shard, "mesh.shard", &Parallel::shard},
                                               {Axis::tensor, "mesh.tensor", &Parallel::tensor},
                                               {Axis::pipeline, "mesh.pipeline", &Parallel::pipeline}}};

constexpr std::array<Shorthand, 2> kShorthands = {
    {{"tensor", "as ddp with mesh.tensor=ranks", "ddp", Axis::tensor},
     {"pipeline", "as ddp with mesh.pipeline=ranks", "ddp", Axis::pipeline}}};

const AxisSetting& setting_of(Axis axis) { return *std::ranges::find(kAxes, axis, &AxisSetting::axis); }

const Shorthand* shorthand_of(std::string_view name) {
  const auto* at = std::ranges::find(kShorthands, name, &Shorthand::name);
  return at == kShorthands.end() ? nullptr : at;
}

/// All ranks stand along the axis of a shorthand, whose setting may say so too, or nothing.
void expand(const Shorthand& shorthand, const settings::Settings& settings, Parallel& parallel) {
  const auto& axis = setting_of(shorthand.axis);
  const auto key = std::string(axis.key);
  const int ranks = parallel.ranks;
  parallel.*axis.size = ranks;
  if (!settings.is_default(key) && settings.get_int(key) != ranks) {
    throw SettingsError(key + " is " + std::to_string(settings.get_int(key)) +
                            " with parallel=" + std::string(shorthand.name) + " and ranks " + std::to_string(ranks) +
                            ", wanted " + std::to_string(ranks) + ", all of them",
                        "leave " + key + " out, or use parallel=" + std::string(shorthand.strategy));
  }
}

void read_mesh(settings::Settings& settings, Job& job) {
  auto& parallel = job.parallel;
  for (const auto& axis : kAxes) parallel.*axis.size = static_cast<int>(settings.get_int(axis.key));
  if (const auto* shorthand = shorthand_of(settings.get_string("parallel"))) expand(*shorthand, settings, parallel);
  parallel.strategy_options.fsdp.shard = parallel.shard;
}

std::string standard_text(const settings::Schema& schema, std::string_view key) {
  return settings::format_value(settings::find_setting(schema, key)->default_value);
}

[[noreturn]] void refuse_sizes(const Parallel& parallel, int64_t product, int ranks) {
  std::string keys, standard;
  for (const auto& axis : kAxes) {
    if (parallel.*axis.size <= 1) continue;
    keys.append(keys.empty() ? "" : " * ").append(axis.key);
    standard.append(standard.empty() ? "" : " and ").append(axis.key).append("=" + standard_text(schema(), axis.key));
  }
  const auto size = std::to_string(product);
  throw SettingsError(keys + " is " + size + " with " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                          ", wanted a number that divides them",
                      "give a multiple of " + size + " ranks, or set " + standard);
}

}  // namespace

std::span<const Shorthand> shorthands() { return kShorthands; }

bool is_auto(const Job& job) { return job.settings.get_string("parallel") == kAutoPlan; }

bool needs_search(const Job& job) { return is_auto(job) || (job.pipeline.is_searched && job.parallel.pipeline > 1); }

std::string searched_setting(const Job& job) { return is_auto(job) ? "parallel is auto" : "pipeline.schedule is fit"; }

void check_has_plan(const Job& job) {
  if (!needs_search(job)) return;
  throw SettingsError(searched_setting(job) + ", wanted a plan", "tandem plan with the same settings finds one");
}

std::string_view strategy_name(std::string_view parallel) {
  if (parallel == kAutoPlan) return parallel::strategies().front().name;  // until the plan is known
  const auto* shorthand = shorthand_of(parallel);
  return shorthand != nullptr ? shorthand->strategy : parallel;
}

void fit_mesh(settings::Settings& settings, int ranks) {
  if (const auto* shorthand = shorthand_of(settings.get_string("parallel"))) {
    if (settings.get_int("ranks") == ranks) return;
    settings.set("parallel", std::string(shorthand->strategy));
    settings.set(setting_of(shorthand->axis).key, std::to_string(settings.get_int("ranks")));
  }
  int64_t product = 1;
  for (const auto& axis : kAxes) product *= std::max<int64_t>(1, settings.get_int(axis.key));
  if (ranks % product == 0) return;
  for (const auto& axis : kAxes) settings.set(axis.key, standard_text(settings.schema(), axis.key));
}

std::string_view setting_of_axis(const Job& job, std::string_view key) {
  const auto* shorthand = shorthand_of(job.settings.get_string("parallel"));
  return shorthand != nullptr && setting_of(shorthand->axis).key == key ? "parallel" : key;
}

parallel::MeshSizes Parallel::mesh(int of_ranks) const {
  const auto along = [&](Axis axis, int size) { return strategy->axes.has(axis) ? size : 1; };
  const int of_tensor = along(Axis::tensor, tensor), of_pipeline = along(Axis::pipeline, pipeline);
  const int64_t together = int64_t{of_tensor} * of_pipeline, all = together * std::max(1, along(Axis::shard, shard));
  if (together > 1 && of_ranks % all != 0) refuse_sizes(*this, all, of_ranks);
  auto sizes = strategy->mesh(static_cast<int>(of_ranks / together), strategy_options);
  sizes.tensor = of_tensor;
  sizes.pipeline = of_pipeline;
  return sizes;
}

void check_mesh(const Job& job) {
  const auto& parallel = job.parallel;
  const auto sizes =
      naming_settings({"mesh", parallel.strategy->settings}, [&] { return parallel.mesh(parallel.ranks); });
  if (!job.head.form->is_whole && parallel.ranks > 1 && sizes.pipeline == 1 && sizes.size(job.head.over) == 1) {
    throw SettingsError("head.over is " + settings::format_value(job.settings.get("head.over")) +
                            ", along which there is one rank, wanted an axis with several",
                        "use head.over=all, or head.parallel=replicated");
  }
  for (const auto axis : {Axis::data, Axis::shard}) {
    if (job.head.form->is_whole || sizes.size(axis) == 1 || job.head.over.has(axis)) continue;
    const auto name = std::string(name_of(axis));
    throw SettingsError("head.over is " + settings::format_value(job.settings.get("head.over")) + " with " +
                            std::to_string(sizes.size(axis)) + " ranks along " + name +
                            ", which share a batch, wanted " + name + " among its axes",
                        "add " + name + ", or use head.over=all");
  }
}

const Section& mesh_section() {
  static const Section section = {
      .rows =
          {{.key = "mesh.shard",
            .default_value = int64_t{0},
            .doc = "ranks among which zero1, zero2 and fsdp divide the parameters or their optimizer's state, a "
                   "divisor of the ranks that share a batch; the others hold copies; 0: all of them",
            .range = {0, 1024},
            .former_key = "fsdp.shard"},
           {"mesh.tensor",
            int64_t{1},
            "ranks among which the model's layers are divided, and which work on the same images; a divisor of ranks; "
            "except with models of cells",
            {1, 1024}},
           {"mesh.pipeline",
            int64_t{1},
            "ranks among which the model's blocks are divided, in stages that the micro-batches of train.accumulate "
            "pass through (pipeline.schedule); a divisor of ranks; with parallel=ddp, zero1, zero2 or fsdp",
            {1, 1024}}},
      .read = read_mesh};
  return section;
}

}  // namespace tandem::job
