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
  auto command = peer_command("recompute");
  if (!command) throw IoError("the peer is not here: bench/recompute/peers.py is gone from the sources");
  command->push_back(bench.model);
  for (const auto number : {bench.batch, bench.size, bench.classes, int64_t{bench.threads}}) {
    command->push_back(std::to_string(number));
  }
  process_ = std::make_unique<PeerProcess>(*command);
  if (process_->read_line() == "ready") return;
  throw IoError("the peer did not start: " + (*command)[0] + " needs torch", "./dev test installs it");
}

double RecomputePeer::ask(const std::string& question, int64_t segments) {
  const auto words = question + " " + std::to_string(segments);
  process_->write_line(words);
  const auto answer = process_->read_line();
  if (!answer) throw IoError("the peer has ended at '" + words + "'");
  return std::stod(*answer);
}

RecomputeWay RecomputePeer::way(int64_t segments) {
  RecomputeWay way{.segments = segments};
  way.bytes = static_cast<int64_t>(ask("bytes", segments));
  ask("seconds", segments);
  return way;
}

void RecomputePeer::time(RecomputeWay& way) { way.seconds.push_back(ask("seconds", way.segments)); }

}  // namespace tandem::cli
