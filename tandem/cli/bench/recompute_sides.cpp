#include "tandem/cli/bench/recompute_sides.h"

#include <ATen/ATen.h>

#include <chrono>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/timeline.h"

namespace tandem::cli {
namespace {

constexpr double kLearningRate = 0.01;

std::vector<std::string> words_of(std::optional<int64_t> budget) {
  if (!budget) return {};
  return {"recompute=optimal", "memory.budget=" + std::to_string(*budget)};
}

data::Batch batch_of(const job::Job& job, const job::DataShape& shape) {
  const CategoryScope scope(Category::buffers);
  const auto& [channels, height, width] = shape.image;
  const auto samples = job.training.batch;
  data::Batch batch;
  batch.images = at::empty({samples, channels, height, width}, at::kFloat);
  fill_normal_(batch.images, 1.0, 1, 1);
  batch.labels = at::arange(samples, at::kLong) * 7919 % shape.classes;
  batch.global_size = samples;
  return batch;
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
    : job_(recompute_job(bench, words_of(budget))), mesh_(make_mesh(job_, group)), rank_(group.rank()) {
  const auto shape = shape_of(job_);
  const auto chosen = choose_recomputation(job_, shape, {shape.classes});
  way_ = {.budget = budget, .plan = to_text(chosen.plan), .predicted_slowdown = chosen.slowdown};
  batch_ = batch_of(job_, shape);
  task_ = make_task(job_, shape, {{shape.classes}, chosen.plan}, group);
  step_ = make_step(job_, shape, *task_, mesh_);
  step();  // makes the optimizer's state
  way_.bytes = measured_bytes();
}

double OwnStep::step() {
  auto context = current_context();
  context.category = Category::activations;
  context.seed = job_.seed;
  context.step = steps_;
  const ContextScope scope(context);
  const auto start = std::chrono::steady_clock::now();
  step_->run(batch_, steps_++, kLearningRate);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t OwnStep::measured_bytes() {
  const auto held = memory::account(rank_);
  memory::EventLog log(rank_);
  step();
  return memory::timeline_of(log.end(), steps_ - 1, held).highest[static_cast<size_t>(Category::activations)];
}

void OwnStep::time() { way_.seconds.push_back(step()); }

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
