#include "tandem/job/sections/memory.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

std::vector<std::string_view> method_names() {
  std::vector<std::string_view> names;
  for (const auto& method : memory::plan_methods()) names.push_back(method.name);
  return names;
}

void read_memory(settings::Settings& settings, Job& job) {
  const auto& method = settings.get_string("recompute");
  job.memory.recompute = &*std::ranges::find(memory::plan_methods(), method, &memory::PlanMethod::name);
  job.memory.budget = parse_bytes(settings.get_string("memory.budget"));  // nullopt: none
  job.memory.event_steps = settings.get_int("memory.events");
  const auto ranks = static_cast<size_t>(job.parallel.ranks);
  auto& limits = job.memory.limits;
  for (const auto& size : settings.get_list("memory.limit")) limits.push_back(parse_bytes(size).value());
  if (limits.size() == 1) limits.assign(ranks, limits[0]);
}

void check_budget(const Job& job) {
  const auto& memory = job.memory;
  const auto method = "recompute is " + std::string(memory.recompute->name);
  if (memory.recompute->has_budget && !memory.budget) {
    throw SettingsError(method + " without memory.budget, wanted the bytes that activations may take",
                        "add memory.budget=600M, or the like");
  }
  if (!memory.budget) return;
  if (*memory.budget == 0) throw SettingsError("memory.budget is 0, wanted 1 byte or more");
  if (!memory.recomputes()) {
    throw SettingsError(method + " with memory.budget, wanted a way to keep it", "add recompute=optimal");
  }
}

void check_memory(const Job& job) {
  check_budget(job);
  if (!job.memory.is_limited()) return;
  const auto sizes = job.memory.limits.size(), ranks = static_cast<size_t>(job.parallel.ranks);
  if (sizes == ranks) return;
  throw SettingsError("memory.limit has " + std::to_string(sizes) + " sizes, wanted 1" +
                      (ranks == 1 ? "" : " or " + std::to_string(ranks) + ", one a rank"));
}

}  // namespace

const Section& memory_section() {
  static const Section section = {
      .rows = {{.key = "memory.limit",
                .default_value = std::vector<std::string>(),
                .doc = "bytes that each rank may use, such as 8G,16G, or one size for all ranks; the classes of the "
                       "head are split to fit; with parallel=auto or pipeline.schedule=fit a plan is chosen that fits",
                .other = settings::kSizes},
               {.key = "recompute",
                .default_value = text("none"),
                .doc = "activations that backward computes again in place of keeping them; all: those of all blocks of "
                       "a stage of a pipeline; sqrt, log: of so many segments of the blocks; optimal: the fastest plan "
                       "within memory.budget; lossy: the same, and activations "
                       "may be kept as bf16 or int8, so that gradients are approximate",
                .choices = method_names()},
               {.key = "memory.budget",
                .default_value = text("none"),
                .doc = "bytes that the activations of a rank may take at any moment of a training step",
                .choices = {"none"},
                .other = settings::kSizes},
               {"memory.events",
                int64_t{0},
                "first training steps of the run of which each rank writes every allocation to a file; 0: none",
                {0, 1e6}}},
      .read = read_memory,
      .check = check_memory,
      .idle = {{{"recompute", "memory.budget"},
                [](const Job& job) { return job.model.is_identity; },
                "with model=none: there are no blocks to compute again"}}};
  return section;
}

}  // namespace tandem::job
