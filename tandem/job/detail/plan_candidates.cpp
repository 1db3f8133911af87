#include "tandem/job/detail/plan_candidates.h"

#include <algorithm>

#include "tandem/job/sections/mesh.h"
#include "tandem/models/model.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

using Words = std::vector<std::string>;
using parallel::Axis;

constexpr int64_t kMostMicroBatches = 64;

/// Those that divide n, from 1 on.
std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int i = 1; i <= n; ++i) {
    if (n % i == 0) all.push_back(i);
  }
  return all;
}

/// What a setting may be: what it was given, or each of `some`.
Words choices(const settings::Settings& settings, const char* key, const Words& some) {
  if (settings.given(key)) return {settings::format_value(settings.get(key))};
  return some;
}

/// 1, 2, 4, ... images of a rank at least one each.
Words micro_batch_choices(const Job& job, int batch_ranks, int pipeline) {
  Words some;
  const int64_t most = std::min(kMostMicroBatches, std::max<int64_t>(1, job.training.batch / batch_ranks));
  for (int64_t count = 1; count <= most; count *= 2) {
    if (count >= pipeline || 2 * count > most) some.push_back(std::to_string(count));
  }
  return choices(job.settings, "train.accumulate", some);
}

/// Each with each.
std::vector<Words> with_each(const std::vector<Words>& words, const std::vector<Words>& choices) {
  std::vector<Words> all;
  for (const auto& some : words) {
    for (const auto& choice : choices) {
      all.push_back(some);
      all.back().insert(all.back().end(), choice.begin(), choice.end());
    }
  }
  return all;
}

std::vector<Words> with_each(const std::vector<Words>& words, const std::string& key, const Words& values) {
  std::vector<Words> choices;
  for (const auto& value : values) choices.push_back({key + "=" + value});
  return with_each(words, choices);
}

/// More graphs of stages than two for each rank are of no use.
Words held_choices(const Job& job, int pipeline) {
  Words some;
  for (int held = pipeline::least_held(pipeline); held <= 2 * pipeline; ++held) some.push_back(std::to_string(held));
  return choices(job.settings, "pipeline.held", some);
}

/// Those that are wanted, with what they hold, if that is to be chosen.
std::vector<Words> schedule_choices(const Job& job, int pipeline) {
  const std::string key = "pipeline.schedule";
  if (job.settings.given(key) && !job.pipeline.is_searched) return {{key + "=" + job.settings.get_string(key)}};
  std::vector<Words> all;
  for (const auto& schedule : pipeline::schedules()) {
    const Words words = {key + "=" + std::string(schedule.name)};
    if (!schedule.has_backward) continue;
    if (!schedule.takes_held) all.push_back(words);
    if (!schedule.takes_held || !job.pipeline.is_searched) continue;
    for (const auto& held : held_choices(job, pipeline)) {
      all.push_back(words);
      all.back().push_back("pipeline.held=" + held);
    }
  }
  return all;
}

/// Those that train any job in each step as one device, on so many ranks that share a batch.
Words strategies_of(int batch_ranks) {
  Words names;
  for (const auto& strategy : parallel::strategies()) {
    if (strategy.takes_gradients && (batch_ranks > 1 || !strategy.divides)) names.emplace_back(strategy.name);
  }
  return names;
}

/// All ways to divide the job over one mesh, some of which it cannot have.
std::vector<Words> plans_of_mesh(const Job& job, int tensor, int pipeline) {
  const auto& settings = job.settings;
  const int batch_ranks = job.parallel.ranks / tensor / pipeline;
  std::vector<Words> all = {{"mesh.tensor=" + std::to_string(tensor), "mesh.pipeline=" + std::to_string(pipeline)}};
  all = with_each(all, "parallel", strategies_of(batch_ranks));
  all = with_each(all, "train.accumulate", micro_batch_choices(job, batch_ranks, pipeline));
  all = with_each(all, "recompute", choices(settings, "recompute", {"none", "sqrt", "all"}));
  if (pipeline == 1) return all;
  all = with_each(all, "head.over", choices(settings, "head.over", {"last", "all"}));
  return with_each(all, schedule_choices(job, pipeline));
}

/// How many ranks may stand along an axis.
std::vector<int> sizes_of_axis(const Job& job, const char* key, Axis axis, int ranks) {
  if (job.settings.given(key)) {
    const auto given = static_cast<int>(job.settings.get_int(key));
    return ranks % given == 0 ? std::vector<int>{given} : std::vector<int>();
  }
  return models::axes_of(job.model.name).has(axis) ? divisors(ranks) : std::vector<int>{1};
}

}  // namespace

std::vector<Words> candidate_plans(const Job& job) {
  if (!is_auto(job)) return schedule_choices(job, job.parallel.pipeline);
  std::vector<Words> all;
  for (const int tensor : sizes_of_axis(job, "mesh.tensor", Axis::tensor, job.parallel.ranks)) {
    for (const int pipeline : sizes_of_axis(job, "mesh.pipeline", Axis::pipeline, job.parallel.ranks / tensor)) {
      for (auto& words : plans_of_mesh(job, tensor, pipeline)) all.push_back(std::move(words));
    }
  }
  return all;
}

std::vector<Words> plans_to_measure(const Job& job) {
  if (!is_auto(job)) return {schedule_choices(job, job.parallel.pipeline).front()};
  std::vector<Words> all;
  const int ranks = job.parallel.ranks;
  for (const int tensor : sizes_of_axis(job, "mesh.tensor", Axis::tensor, ranks)) {
    for (const int pipeline : sizes_of_axis(job, "mesh.pipeline", Axis::pipeline, ranks / tensor)) {
      const int batch_ranks = ranks / tensor / pipeline;
      const Words mesh = {"mesh.tensor=" + std::to_string(tensor), "mesh.pipeline=" + std::to_string(pipeline)};
      const auto some = with_each({mesh}, "train.accumulate", micro_batch_choices(job, batch_ranks, pipeline));
      for (auto& words : with_each(some, "parallel", strategies_of(batch_ranks))) all.push_back(std::move(words));
    }
  }
  return all;
}

}  // namespace tandem::job
