#include "tandem/job/rank_memory.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/base/context.h"
#include "tandem/base/draws.h"
#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/classifier/block_sizes.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/joint_work.h"
#include "tandem/comm/split.h"
#include "tandem/job/detail/images_at_once.h"
#include "tandem/job/detail/plan_types.h"
#include "tandem/job/parts.h"
#include "tandem/job/ranks.h"
#include "tandem/job/sections/mesh.h"
#include "tandem/memory/device_meter.h"
#include "tandem/memory/keep_ways.h"
#include "tandem/memory/meter.h"

namespace tandem::job {
namespace {

/// A head has at least one.
std::vector<int64_t> with_a_class(std::vector<int64_t> counts) {
  if (comm::sum_of(counts) == 0) counts[0] = 1;
  return counts;
}

/// A rank's part of a batch of `global_size` images: zeros, and targets that are classes of this rank, at most
/// `targets`.
data::Batch synthetic_batch(const DataShape& shape, const data::LoaderOptions& options, const HeldClasses& held,
                            int64_t global_size, int64_t targets = std::numeric_limits<int64_t>::max()) {
  const int64_t own = std::min(held.count, targets);
  const int64_t samples = data::samples_of(options, global_size);
  data::Batch batch;
  batch.images = at::zeros({samples, shape.image[0], shape.image[1], shape.image[2]}, options.device);
  batch.labels = own > 0 ? at::arange(samples).remainder_(own).add_(held.first) : at::full({samples}, -1, at::kLong);
  batch.global_size = global_size;
  return batch;
}

/// How many classes a step may score.
std::vector<int64_t> draws_of(const Job& job, int64_t own_classes) {
  if (!job.head.options.sampling) return {own_classes};
  return largest_draws(job.head.options, own_classes, job.training.batch, threads_of(job.parallel));
}

Job with_draw(Job job, int64_t scored) {
  if (job.head.options.sampling) job.head.options.sampling->scored = scored;
  return job;
}

/// The most that a test allocates: one batch, as train::evaluate() gives it to the task.
int64_t rehearse_test(train::Task& task, const data::Batch& batch, const data::LoaderOptions& options) {
  const at::NoGradGuard no_grad;
  const memory::ProbeScope probe;
  const auto sizes = data::samples_of_ranks(options, batch.global_size);
  task.set_training(false);
  task.rehearse_test(batch, 1, sizes);
  return probe.account().peak_bytes();
}

/// `step`: of the calling rank, if it is known.
RankMemory rehearse_jointly(const Job& job, const DataShape& shape, const TaskPlan& plan, const DataAmount& amount,
                            comm::ProcessGroup& group, const std::optional<memory::Composition>& step = {}) {
  RankMemory own;
  comm::jointly(group, [&] { own = rehearse_rank(job, shape, group.rank(), plan, amount, step); });
  return own;
}

void check_budget(const Job& job, int rank, const memory::Composition& step) {
  const auto highest = step.highest[static_cast<size_t>(Category::activations)];
  if (!job.memory.budget || highest <= *job.memory.budget) return;
  throw SettingsError("memory.budget is " + format_count(*job.memory.budget) + " bytes, wanted at least " +
                          format_count(highest) + ", which rank " + std::to_string(rank) +
                          " needs with recompute=" + std::string(job.memory.recompute->name),
                      job.memory.recompute->has_budget ? "raise it, or lower train.batch"
                                                       : "raise it, or give recompute=optimal, which plans by it");
}

/// Of a rank's step, by the plan: of each stage of a pipeline.
std::vector<std::vector<memory::Stage>> stages_with(const Job& of, const DataShape& shape, const TaskPlan& plan,
                                                    bool in_parts, int rank) {
  const memory::ProbeScope aside;
  const WithoutDraws no_draws;
  const auto held = held_classes(of, plan.counts, rank);
  const auto job = with_draw(of, draws_of(of, held.count).front());
  const auto group = comm::make_rehearsal_group(rank, job.parallel.ranks, job.parallel.transport);
  const auto parts = assemble(job, shape, plan, *group);
  const auto batch =
      synthetic_batch(shape, training_loader_options(job, rank, job.parallel.ranks), held, job.training.batch);
  std::vector<std::vector<memory::Stage>> all;
  detail::name_single_images(job, [&] {
    for (auto& [chain, records] : parts.step->rehearse_blocks(batch, in_parts)) {
      all.push_back(stages_of(chain, only(std::move(records), Category::activations)));
    }
  });
  return all;
}

/// Keeps every second block from `first` on in the way `keep`, the others plainly.
memory::RecomputePlan every_second(size_t blocks, size_t first, int keep) {
  memory::RecomputePlan plan;
  for (size_t i = 0; i < blocks; ++i) {
    const int block = static_cast<int>(i);
    plan.push_back({.first = block, .last = block, .keep = i % 2 == first ? keep : 0});
  }
  return plan;
}

/// Bytes of this machine's memory that are free.
int64_t free_memory() { return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

/// The split within memory.limit, and the memory of the calling rank with it. All ranks look for it alike, by the same
/// peaks. Collective.
RankPlan split_within_limits(const Job& job, const DataShape& shape, const DataAmount& amount,
                             comm::ProcessGroup& group) {
  const auto recomputation = choose_recomputation(job, shape, group);
  std::optional<LargeRanks> large;  // of rank 0
  const auto about = [&](const std::vector<int64_t>& counts) {
    std::vector<RankPeak> peaks(counts.size());
    comm::on_leader(group, [&] {
      if (!large) large.emplace(job, shape);
      peaks = large->peaks(counts);
    });
    for (auto& peak : peaks) {
      peak.bytes = comm::broadcast_number(peak.bytes, 0, group);
      peak.block = comm::broadcast_text(peak.block, 0, group);
    }
    return peaks;
  };
  RankMemory own;
  const auto peaks_of = [&](const std::vector<int64_t>& counts) {
    own = rehearse_jointly(job, shape, {counts, recomputation.plan}, amount, group);
    const auto peak = own.peak();
    const auto bytes = comm::gather_numbers(peak.bytes, group), in_test = comm::gather_numbers(peak.in_test, group);
    const auto blocks = comm::gather_texts(peak.block, group);
    std::vector<RankPeak> peaks;
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      peaks.push_back({bytes[rank], blocks[rank], in_test[rank] == 1});
    }
    return peaks;
  };
  try {
    const auto counts = fit_counts(job, shape.classes, about, peaks_of);
    return {{counts, recomputation.plan}, own, recomputation.slowdown};
  } catch (SettingsError& error) {
    error.set_rank(0, 1);  // all ranks have it
    throw;
  }
}

/// Of a step that scores so many classes.
RankMemory rehearse_draw(const Job& of, const DataShape& shape, int rank, const TaskPlan& plan,
                         const DataAmount& amount, int64_t scored, const std::optional<memory::Composition>& known) {
  if (known && amount.test_images == 0) return {*known, 0};
  const memory::ProbeScope aside;
  const WithoutDraws no_draws;
  const auto job = with_draw(of, scored);
  const auto own = held_classes(job, plan.counts, rank);
  const auto batch =
      synthetic_batch(shape, training_loader_options(job, rank, job.parallel.ranks), own, job.training.batch, scored);
  const memory::ProbeScope probe;
  const auto group = comm::make_rehearsal_group(rank, job.parallel.ranks, job.parallel.transport);
  const auto parts = assemble(job, shape, plan, *group);
  if (job.training.skip_nonfinite > 0) parts.step->allow_skips(job.training.skip_nonfinite);
  auto held = probe.account();
  const int ranks = group->size();
  held.add(Category::buffers, (job.search ? 2 : 1) * data::loader_memory(training_loader_options(job, rank, ranks),
                                                                         shape.image, amount.batches));
  RankMemory memory;
  detail::name_single_images(job, [&] { memory.step = known ? *known : parts.step->rehearse(batch, held); });
  if (amount.test_images == 0) return memory;
  const auto options = evaluation_loader_options(job, rank, ranks);
  const int64_t images = std::min(options.batch, amount.test_images),
                batches = (amount.test_images + images - 1) / images;
  memory.test = memory.step.account.live_bytes() + data::loader_memory(options, shape.image, batches) +
                rehearse_test(*parts.task, synthetic_batch(shape, options, own, images), options);
  return memory;
}

}  // namespace

RankPeak RankMemory::peak() const {
  const auto in_step = step.account.peak_bytes();
  if (test > in_step) return {test, "", true};
  const auto block = block_name(step.block);
  return {in_step, block.empty() ? "optimizer" : block};
}

RankMemory rehearse_rank(const Job& job, const DataShape& wanted, int rank, const TaskPlan& plan,
                         const DataAmount& amount, const std::optional<memory::Composition>& step) {
  const auto counts = with_a_class(plan.counts);
  const DataShape shape{comm::sum_of(counts), wanted.image};
  RankMemory memory;
  for (const auto scored : draws_of(job, held_classes(job, counts, rank).count)) {
    const auto one = rehearse_draw(job, shape, rank, {counts, plan.recompute}, amount, scored, step);
    memory = {highest_of(memory.step, one.step), std::max(memory.test, one.test)};
  }
  check_budget(job, rank, memory.step);
  return memory;
}

std::vector<std::vector<memory::Stage>> rehearse_stages(const Job& job, const DataShape& shape,
                                                        const std::vector<int64_t>& counts, bool in_parts, int rank) {
  auto all = stages_with(job, shape, {counts}, in_parts, rank);
  if (!job.memory.recompute->is_lossy) return all;
  auto& stages = all.front();
  for (size_t row = 0; row < memory::keep_ways().size(); ++row) {
    const auto& way = memory::keep_ways()[row];
    if (way.frees_device && job.parallel.device.is_cpu()) break;
    // Neighbours that are kept in one way would be one block.
    const auto kept_from = [&](size_t first) {
      const auto plan = every_second(stages.size(), first, static_cast<int>(row) + 1);
      return stages_with(job, shape, {counts, plan}, in_parts, rank).front();
    };
    auto kept = kept_from(0);
    const auto others = kept_from(1);
    for (size_t i = 1; i < kept.size(); i += 2) kept[i] = others[i];
    add_keep(stages, way, kept);
  }
  return all;
}

PlannedRanks::PlannedRanks(const Job& job, const DataShape& shape, LargeRanks& large)
    : job_(job), shape_(shape), large_(large), even_(even_counts(job, shape.classes, job.parallel.ranks)) {
  memory::meter_memory_of(job.parallel.device.type());
  if (is_small(0, even_[0])) check_types(job, shape);
}

const Recomputation& PlannedRanks::recomputation(int rank) {
  const int coordinate = job_.parallel.mesh(job_.parallel.ranks).coordinate(parallel::Axis::pipeline, rank);
  const auto [known, is_new] = recomputations_.try_emplace(coordinate);
  if (is_new && is_small(rank, held_classes(job_, even_, rank).count)) {
    known->second = choose_recomputation(job_, shape_, even_, /*batches=*/0, rank);
  }
  return known->second;
}

bool PlannedRanks::is_small(int rank, int64_t own_classes) {
  constexpr double kMostProducts = 5e9;  // of the head in forward, about a second
  const auto products = static_cast<double>(own_classes) * static_cast<double>(job_.model.features) *
                        static_cast<double>(job_.training.batch);
  return products < kMostProducts && large_.peak(rank, own_classes).bytes < free_memory() / 2;
}

const PlannedRank& PlannedRanks::rank(int rank, const std::vector<int64_t>& counts) {
  const auto& parallel = job_.parallel;
  const auto images = data::samples_of(training_loader_options(job_, rank, parallel.ranks), job_.training.batch);
  const auto own_classes = held_classes(job_, counts, rank).count;
  const auto mesh = parallel.mesh(parallel.ranks);
  const bool has_own_parts = mesh.ranks() > mesh.data || images == 0;
  const int64_t kind = has_own_parts ? rank : std::min(rank, 1);
  const auto [place, is_new] = known_.try_emplace({own_classes, comm::sum_of(counts), images, kind});
  auto& known = place->second;
  if (!is_new) return known;
  if (is_small(rank, own_classes)) {
    const int64_t batches = job_.data.prefetch + 1;
    const auto& chosen = recomputation(rank);
    const auto memory = rehearse_rank(job_, shape_, rank, {counts, chosen.plan},
                                      {batches, job_.data.source->has_test ? job_.evaluation.batch : 0},
                                      rank == 0 && counts == even_ ? chosen.step : std::nullopt);
    return known = {memory.step.account, memory.peak(), memory.test, true, memory.step.levels};
  }
  are_rehearsed_ = false;
  known.levels = large_.rank(rank, own_classes);
  known.step.at_peak = memory::highest_of(known.levels).bytes;
  known.peak = large_.peak(rank, own_classes);
  return known;
}

PeaksOf PlannedRanks::peaks() {
  return [this](const std::vector<int64_t>& counts) {
    std::vector<RankPeak> peaks;
    for (int rank = 0; rank < job_.parallel.ranks; ++rank) peaks.push_back(this->rank(rank, counts).peak);
    return peaks;
  };
}

std::vector<PlannedRank> PlannedRanks::ranks(const std::vector<int64_t>& counts) {
  std::vector<PlannedRank> all;
  for (int rank = 0; rank < job_.parallel.ranks; ++rank) all.push_back(this->rank(rank, counts));
  return all;
}

RankPlan plan_rank(const Job& as_read, const DataShape& shape, const DataAmount& amount, comm::ProcessGroup& group) {
  check_has_plan(as_read);
  Job job = as_read;
  if (job.parallel.device.is_cpu()) job.parallel.transport = group.transport();
  if (job.parallel.mesh(group.size()).tensor > 1) comm::on_leader(group, [&] { check_types(job, shape); });
  if (!job.memory.is_limited()) {
    const auto recomputation = choose_recomputation(job, shape, group, amount.batches);
    const TaskPlan plan{even_counts(job, shape.classes, group.size()), recomputation.plan};
    return {plan, rehearse_jointly(job, shape, plan, amount, group, recomputation.step), recomputation.slowdown};
  }
  return split_within_limits(job, shape, amount, group);
}

}  // namespace tandem::job
