#include "tandem/cli/bench/recompute_sides.h"

#include "tandem/base/error.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/timeline.h"

namespace tandem::cli {
namespace {

std::vector<std::string> words_of(std::optional<int64_t> budget) {
  if (!budget) return {};
  return {"recompute=optimal", "memory.budget=" + std::to_string(*budget)};
}

}  // namespace

job::Job recompute_job(const RecomputeBench& bench, const std::vector<std::string>& words) {
  settings::Settings settings(job::schema());
  settings.apply(std::vector<std::string>{
      "data=synthetic", "head=softmax", "model=" + bench.model, "train.batch=" + std::to_string(bench.batch),
      "data.size=" + std::to_string(bench.size), "head.classes=" + std::to_string(bench.classes),
      "threads=" + std::to_string(bench.threads)});
  settings.apply(words);
  auto job = job::read_job(settings);
  check_training(job);
  return job;
}

OwnStep::OwnStep(const RecomputeBench& bench, std::optional<int64_t> budget, comm::ProcessGroup& group)
    : job_(recompute_job(bench, words_of(budget))), rank_(group.rank()) {
  const auto shape = shape_of(job_);
  const auto chosen = choose_recomputation(job_, shape, {shape.classes});
  way_ = {.budget = budget, .plan = to_text(chosen.plan), .predicted_slowdown = chosen.slowdown};
  step_ = std::make_unique<TimedStep>(job_, job::TaskPlan{{shape.classes}, chosen.plan}, group);
  step_->run();  // makes the optimizer's state
  way_.bytes = measured_bytes();
}

int64_t OwnStep::measured_bytes() {
  const auto held = memory::account(rank_);
  memory::EventLog log(rank_);
  step_->run();
  return memory::timeline_of(log.end(), step_->steps() - 1, held).highest[static_cast<size_t>(Category::activations)];
}

void OwnStep::time() { way_.seconds.push_back(step_->run()); }

RecomputePeer::RecomputePeer(const RecomputeBench& bench) {
  if (!bench.with_peers) return;
  auto command = peer_command("recompute");
  if (command) {
    command->push_back(bench.model);
    for (const auto number : {bench.batch, bench.size, bench.classes, int64_t{bench.threads}}) {
      command->push_back(std::to_string(number));
    }
  }
  peer_.emplace("torch", command);
}

std::optional<double> RecomputePeer::ask(const std::string& question, int64_t segments) {
  if (!peer_) return std::nullopt;
  const auto answer = peer_->ask(question + " " + std::to_string(segments), 1);
  return answer ? std::optional(answer->front()) : std::nullopt;
}

std::optional<RecomputeWay> RecomputePeer::way(int64_t segments) {
  const auto bytes = ask("bytes", segments);
  if (!bytes || !ask("seconds", segments)) return std::nullopt;
  return RecomputeWay{.segments = segments, .bytes = static_cast<int64_t>(*bytes)};
}

void RecomputePeer::time(RecomputeWay& way) {
  if (const auto seconds = ask("seconds", way.segments)) way.seconds.push_back(*seconds);
}

}  // namespace tandem::cli
