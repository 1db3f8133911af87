#include "tandem/cli/bench/parity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numbers>

#include "tandem/base/error.h"
#include "tandem/cli/bench/one_device.h"
#include "tandem/cli/run/block_file.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/meter.h"
#include "tandem/pipeline/schedule.h"

namespace tandem::cli {
namespace {

constexpr double kRate = 0.3, kMomentum = 0.9;

using Words = std::vector<std::string>;

/// What trains, and how one device does.
struct Reference {
  Words model;
  OneDevice (*train)(job::Job job, const PlainSteps& steps);
  int64_t most_steps = std::numeric_limits<int64_t>::max();  // where one takes long
  PlainHead head = {};

  int64_t steps(const ParityBench& bench) const { return std::min(bench.steps, most_steps); }
};

constexpr double kScale = 8, kMargin = 0.3, kFactor = 3, kAnneal = 2;

Tensor arcface(const Tensor& cosine, int64_t) { return (cosine.acos() + kMargin).cos(); }
Tensor detached_arcface(const Tensor& cosine, int64_t) { return cosine + (arcface(cosine, 0) - cosine).detach(); }
Tensor cosface(const Tensor& cosine, int64_t) { return cosine - kMargin; }

/// (-1)^k cos(factor angle) - 2k, whose weight grows from step to step.
Tensor l_softmax(const Tensor& cosine, int64_t step) {
  const auto angle = cosine.acos() * kFactor, turns = (angle.detach() / std::numbers::pi).floor();
  const double plain = kAnneal / (1 + static_cast<double>(step));
  return (cosine * plain + (1 - turns.remainder(2) * 2) * angle.cos() - turns * 2) / (1 + plain);
}

/// Heads whose classes are divided over a pipeline.
const std::array<Reference, 6> kHeads = {{
    {{"model=resnet_glyph", "model.norm=none", "head=arcface", "head.scale=8", "head.margin=0.3"},
     train_plainly,
     kParitySlowSteps,
     {kScale, arcface}},
    {{"model=resnet_glyph", "model.norm=none", "head=arcface", "head.scale=8", "head.margin=0.3",
      "head.gradient=detached"},
     train_plainly,
     kParitySlowSteps,
     {kScale, detached_arcface}},
    {{"model=resnet_glyph", "model.norm=none", "head=cosface", "head.scale=8", "head.margin=0.3"},
     train_plainly,
     kParitySlowSteps,
     {kScale, cosface}},
    {{"model=resnet_glyph", "model.norm=none", "head=l-softmax", "head.factor=3", "head.anneal=2,1,1,0"},
     train_plainly,
     kParitySlowSteps,
     {0, l_softmax}},
    {{"model=resnet_glyph", "model.norm=none", "head.smoothing=0.2"}, train_plainly, kParitySlowSteps, {0, {}, 0.2}},
    {{"model=resnet_glyph", "model.norm=none", "head=linear"}, train_plainly, kParitySlowSteps, {0, {}, 0, true}},
}};

const Reference kMlp = {{}, train_plainly}, kPixels = {{"model=none", "embedding=64"}, train_plainly},
                kResNet = {{"model=resnet_glyph", "model.norm=none"}, train_plainly},
                kResNet18 = {{"model=resnet18", "model.norm=none"}, train_plainly, kParitySlowSteps},
                kViT = {{"model=vit_tiny", "model.patch=4", "model.heads=6"}, train_plainly, kParitySlowSteps},
                kCells = {{"model=darts-v2"}, train_plainly, kParitySlowSteps},
                kSearch = {{"model=search:s2"}, search_plainly, kParitySlowSteps};

/// What trains, and how its ranks stand.
struct Plan {
  std::string_view parallel;
  const Reference* reference = &kMlp;
  Words more = {};
  int divisor = 1;  // of the ranks, of which there are as many as the bench says, or this many if that is less
  int most = std::numeric_limits<int>::max();  // ranks
  bool recomputes = true;
  std::vector<int64_t> accumulate = {};  // empty: as the bench has it

  Words words() const {
    auto all = reference->model;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

/// Classes over all ranks of pipelines, alone and beside other axes.
void add_divided_heads(std::vector<Plan>& plans) {
  const auto add = [&](std::string_view parallel, const Reference& reference, Words more, int divisor, int most) {
    plans.push_back({.parallel = parallel,
                     .reference = &reference,
                     .more = std::move(more),
                     .divisor = divisor,
                     .most = most,
                     .recomputes = false,
                     .accumulate = {3}});
  };
  for (const auto& head : kHeads) {
    for (const auto* schedule : {"gpipe", "1f1b", "v-half"}) {
      const bool has_two = std::string_view(schedule) == "v-half";  // stages a rank, of five blocks
      add("pipeline", head, {"head.over=pipeline", std::string("pipeline.schedule=") + schedule}, 1, has_two ? 2 : 4);
    }
  }
  for (const auto* schedule : {"interleaved", "zb-h1", "zb-h2", "zb-v", "v-min"}) {
    plans.push_back({.parallel = "pipeline",
                     .reference = &kHeads[0],
                     .more = {"head.over=all", std::string("pipeline.schedule=") + schedule},
                     .divisor = 2,
                     .most = 2,
                     .recomputes = false,
                     .accumulate = {4}});
  }
  const auto& arcface = kHeads[0];
  add("ddp", arcface, {"mesh.pipeline=2", "head.over=all"}, 2, 6);
  add("ddp", arcface, {"mesh.tensor=2", "mesh.pipeline=2", "head.over=all", "pipeline.schedule=gpipe"}, 4, 4);
  add("ddp", arcface, {"mesh.tensor=2", "mesh.pipeline=2", "head.over=pipeline"}, 4, 4);
  add("ddp", arcface, {"mesh.tensor=2", "mesh.pipeline=2", "head.over=data,pipeline"}, 8, 8);
  add("ddp", arcface, {"mesh.tensor=2", "mesh.pipeline=2", "head.over=all", "pipeline.schedule=v-half"}, 8, 8);
}

/// Real models over each two axes of a mesh, and over three with the classes over all of them.
void add_pairs_of_axes(std::vector<Plan>& plans) {
  const auto add = [&](const Reference& model, std::string_view parallel, Words more, int ranks, int64_t parts,
                       bool recomputes = false) {
    plans.push_back({.parallel = parallel,
                     .reference = &model,
                     .more = std::move(more),
                     .divisor = ranks,
                     .most = ranks,
                     .recomputes = recomputes,
                     .accumulate = {parts}});
  };
  for (const auto* model : {&kResNet18, &kViT}) {
    add(*model, "ddp", {"mesh.tensor=2"}, 4, 2);
    add(*model, "fsdp", {"mesh.shard=2"}, 4, 2);
    add(*model, "fsdp", {"mesh.tensor=2"}, 4, 3);
    add(*model, "ddp", {"mesh.pipeline=2", "head.over=all"}, 4, 3);
    add(*model, "fsdp", {"mesh.pipeline=2"}, 4, 3);
    add(*model, "zero2", {"mesh.pipeline=2", "pipeline.schedule=v-half"}, 4, 3);
    add(*model, "fsdp", {"mesh.pipeline=2", "pipeline.schedule=zb-v", "head.over=all"}, 4, 3, true);
    add(*model, "ddp", {"mesh.tensor=2", "mesh.pipeline=2", "head.over=all"}, 4, 2);
    add(*model, "fsdp", {"mesh.tensor=2", "mesh.pipeline=2", "pipeline.schedule=interleaved"}, 8, 2, true);
    add(*model, "fsdp", {"mesh.tensor=2", "mesh.pipeline=2", "pipeline.schedule=zb-h1", "head.over=all"}, 8, 3);
  }
}

/// Each strategy, plans whose ranks do not all have images of their own, pipelines, and a search.
std::vector<Plan> all_plans() {
  std::vector<Plan> plans;
  for (const auto& strategy : parallel::strategies()) plans.push_back({.parallel = strategy.name});
  plans.push_back({.parallel = "tensor", .reference = &kPixels});
  for (const auto* model : {&kMlp, &kResNet, &kViT}) plans.push_back({.parallel = "tensor", .reference = model});
  plans.push_back({.parallel = "tensor", .reference = &kViT, .more = {"model.sequence_parallel=true"}});
  for (const auto* model : {&kPixels, &kViT}) {
    plans.push_back({.parallel = "ddp", .reference = model, .more = {"mesh.tensor=2"}, .divisor = 2});
  }
  plans.push_back(
      {.parallel = "ddp", .reference = &kResNet, .more = {"mesh.tensor=2", "head.over=data"}, .divisor = 4});
  plans.push_back({.parallel = "fsdp", .reference = &kViT, .more = {"mesh.tensor=2"}, .divisor = 4});
  for (const auto* sharded : {"zero1", "fsdp"}) {
    plans.push_back(
        {.parallel = sharded, .reference = &kResNet, .more = {"mesh.shard=2", "mesh.tensor=2"}, .divisor = 8});
  }
  for (const auto& schedule : pipeline::schedules()) {
    if (!schedule.has_backward) continue;
    plans.push_back({.parallel = "pipeline",
                     .reference = &kResNet,
                     .more = {"pipeline.schedule=" + std::string(schedule.name)},
                     .most = schedule.chunks == 1 ? 5 : 2,  // five blocks
                     .recomputes = false,
                     .accumulate = schedule.chunks == 0 ? std::vector<int64_t>{2, 4} : std::vector<int64_t>()});
  }
  for (const auto* model : {&kResNet18, &kViT, &kCells}) {
    plans.push_back({.parallel = "pipeline", .reference = model, .more = {"pipeline.schedule=zb-v"}, .most = 2});
  }
  plans.push_back({.parallel = "pipeline",
                   .reference = &kResNet18,
                   .more = {"pipeline.schedule=zb-h1"},
                   .recomputes = false,
                   .accumulate = {3}});
  for (const auto* summing : {"ddp", "zero1", "zero2"}) {
    plans.push_back(
        {.parallel = summing, .reference = &kResNet, .more = {"mesh.pipeline=2"}, .divisor = 2, .recomputes = false});
  }
  plans.push_back({.parallel = "ddp",
                   .reference = &kViT,
                   .more = {"mesh.tensor=2", "mesh.pipeline=2", "pipeline.schedule=zb-h1"},
                   .divisor = 4,
                   .recomputes = false});
  add_divided_heads(plans);
  add_pairs_of_axes(plans);
  plans.push_back({.parallel = "ddp", .reference = &kSearch});
  return plans;
}

job::Job job_of(const ParityBench& bench, const ParityCase& plan) {
  settings::Settings settings(job::schema());
  settings.apply(Words{"data=synthetic",
                       "data.size=8",
                       "head.classes=11",
                       "model=mlp",
                       "embedding=12",
                       "head=softmax",
                       "train.precision=float64",
                       "train.weight_decay=0",
                       "train.nesterov=false",
                       "train.momentum=" + std::to_string(kMomentum),
                       "train.batch=" + std::to_string(bench.batch),
                       "train.steps=" + std::to_string(bench.steps),
                       "parallel=" + plan.parallel,
                       "ranks=" + std::to_string(plan.ranks),
                       "train.accumulate=" + std::to_string(plan.accumulate),
                       "recompute=" + plan.recompute,
                       "model.norm=group",
                       "train.optimizer=sgd",
                       "model.cells=3",
                       "model.channels=4",
                       "train.clip=0"});
  settings.apply(plan.more);
  auto job = job::read_job(std::move(settings));
  check_training(job);
  if (const auto meet = job.parallel.strategy->meet_each_step) meet(job.parallel.strategy_options);
  return job;
}

/// The largest absolute number.
double largest_of(const Named& tensors) {
  double most = 0;
  for (const auto& [name, tensor] : tensors) most = std::max(most, tensor.abs().max().item<double>());
  return most;
}

ParityNumbers largest_of(const OneDevice& one) {
  return {*std::ranges::max_element(one.losses), largest_of(one.gradients), largest_of(one.weights)};
}

double difference(const train::Parameter& own, const Tensor& whole) {
  auto expected = whole;
  for (const auto& split : own.placement.splits) expected = expected.narrow(split.dim, split.first, split.count);
  return own.tensor.numel() == 0 ? 0 : (own.tensor.detach() - expected).abs().max().item<double>();
}

double moved(const OneDevice& one) {
  double most = 0;
  for (const auto& [name, weight] : one.weights) {
    most = std::max(most, (weight - one.first_weights.at(name)).abs().max().item<double>());
  }
  return most;
}

/// Of the tensors whose names are `prefix` and then one of those in `whole`. Together the ranks hold all their numbers.
double greatest(const std::vector<train::Parameter>& tensors, const std::string& prefix, const Named& whole,
                comm::ProcessGroup& group) {
  double most = 0, found = 0, wanted = 0;
  for (const auto& tensor : tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    const auto at = whole.find(tensor.name.substr(prefix.size()));
    if (at == whole.end()) continue;
    most = std::max(most, difference(tensor, at->second));
    if (tensor.placement.counts_on(group.rank())) found += static_cast<double>(tensor.tensor.numel());
  }
  for (const auto& [name, tensor] : whole) wanted += static_cast<double>(tensor.numel());
  found = comm::reduce_number(found, comm::Reduce::sum, group);
  TORCH_INTERNAL_ASSERT(found == wanted, "parity: ", found, " of ", wanted, " numbers are compared");
  return most;
}

OneDevice on_one_device(const ParityBench& bench, const Reference& reference) {
  const ParityCase alone = {.parallel = std::string(parallel::strategies().front().name),
                            .more = reference.model,
                            .ranks = 1,
                            .accumulate = 1,
                            .recompute = "none"};
  return reference.train(
      job_of(bench, alone),
      {.count = reference.steps(bench), .rate = kRate, .momentum = kMomentum, .head = reference.head});
}

/// Trains one plan on this rank. SGD's momentum after the first step, which ranks that meet may still have to unify, is
/// the gradient of that step.
ParityCase compare(const ParityBench& bench, ParityCase plan, const OneDevice& expected, comm::ProcessGroup& group) {
  auto job = job_of(bench, plan);
  auto& found = plan.difference;
  const auto data = open_data(job);
  const auto shape = shape_of(job, *data.train);
  const auto loader = training_loader(job, *data.train, group);
  const auto recompute = choose_recomputation(job, shape, group).plan;
  const auto parts = assemble(job, shape, {even_counts(job, shape.classes, group.size()), recompute}, group);
  const auto& step = parts.step;
  const auto validation = begin_search(job, parts, *data.test, loader->batches_per_epoch(), group);
  loader->start(0);
  data::Batch batch;
  for (int64_t i = 0; i < std::ssize(expected.losses) && loader->next(batch); ++i) {
    const double loss = step->run(batch, i, kRate)->loss.value();
    found.loss = std::max(found.loss, std::abs(loss - expected.losses.at(i)));
    if (i > 0) continue;
    step->unify();
    found.gradient = greatest(step->state(), "optimizer.momentum_buffer.", expected.gradients, group);
  }
  step->unify();
  found.weight = greatest(step->weights(), "", expected.weights, group);
  for (double* number : {&found.loss, &found.gradient, &found.weight}) {
    *number = comm::reduce_number(*number, comm::Reduce::max, group);
  }
  return plan;
}

/// Of two steps.
train::Trace trace_of(const ParityBench& bench, const ParityCase& plan) {
  auto job = job_of(bench, plan);
  job.run.traced = job::Traced::stats;
  train::Trace trace;
  comm::run_ranks(job.parallel.ranks, [&](comm::ProcessGroup& group) {
    auto own = job;
    const auto data = open_data(own);
    const auto shape = shape_of(own, *data.train);
    const auto loader = training_loader(own, *data.train, group);
    const auto recompute = choose_recomputation(own, shape, group).plan;
    const auto parts = assemble(own, shape, {even_counts(own, shape.classes, group.size()), recompute}, group);
    const auto validation = begin_search(own, parts, *data.test, loader->batches_per_epoch(), group);
    parts.trace->set_sink([&](const train::Trace& step) { trace.insert(trace.end(), step.begin(), step.end()); });
    loader->start(0);
    data::Batch batch;
    for (int64_t i = 0; i < 2 && loader->next(batch); ++i) parts.step->run(batch, i, kRate);
  });
  return trace;
}

bool is_more_than_rounding(const ParityNumbers& difference, const ParityNumbers& largest) {
  return difference.loss > kParityRounding * largest.loss || difference.gradient > kParityRounding * largest.gradient ||
         difference.weight > kParityRounding * largest.weight;
}

}  // namespace

std::string where_it_parts(const ParityBench& bench, const ParityCase& plan) {
  auto alone = plan;
  alone.parallel = parallel::strategies().front().name;
  alone.ranks = 1;
  alone.accumulate = 1;
  alone.recompute = "none";
  std::erase_if(alone.more,
                [](const auto& word) { return word.starts_with("mesh.") || word.starts_with("head.over"); });
  const bool have_same_samples = plan.ranks == 1 && plan.accumulate == 1;
  const auto first = train::first_difference(trace_of(bench, alone), trace_of(bench, plan), have_same_samples, 1e-9);
  return first ? text_of(*first) : "";
}

ParityResult bench_parity(const ParityBench& bench) {
  memory::install_meter();  // recomputation is planned by bytes
  std::map<const Reference*, OneDevice> references;
  for (const auto* reference : {&kMlp, &kPixels, &kResNet, &kResNet18, &kViT, &kCells, &kSearch})
    references[reference] = on_one_device(bench, *reference);
  for (const auto& reference : kHeads) references[&reference] = on_one_device(bench, reference);
  const auto& one = references[&kMlp];
  ParityResult result;
  result.largest = largest_of(one);
  result.moved = moved(one);
  for (const auto& plan : all_plans()) {
    const auto& expected = references[plan.reference];
    const int most = std::min(plan.most, std::max(bench.most_ranks, plan.divisor));
    for (int ranks = plan.divisor; ranks <= most; ranks += plan.divisor) {
      for (const int64_t parts : plan.accumulate.empty() ? bench.accumulate : plan.accumulate) {
        for (const auto& recompute : plan.recomputes ? bench.recompute : Words{"none"}) {
          ParityCase compared{std::string(plan.parallel), plan.words(), ranks, parts, recompute};
          compared.largest = largest_of(expected);
          const auto job = job_of(bench, compared);
          comm::run_ranks(job.parallel.ranks,
                          [&](comm::ProcessGroup& group) {
                            const auto measured = compare(bench, compared, expected, group);
                            if (group.rank() == 0) result.cases.push_back(measured);
                          },
                          {.threads = job.parallel.parts() / job.parallel.ranks});
          auto& measured = result.cases.back();
          const bool is_traced = !job.parallel.strategy->is_one_process && job.parallel.pipeline == 1;
          if (is_traced && is_more_than_rounding(measured.difference, measured.largest)) {
            measured.parts = where_it_parts(bench, measured);
          }
        }
      }
    }
  }
  return result;
}

}  // namespace tandem::cli
