#include "tandem/job/large_ranks.h"

#include <algorithm>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/classifier/block_sizes.h"
#include "tandem/comm/split.h"
#include "tandem/job/parts.h"
#include "tandem/job/pipeline_cut.h"
#include "tandem/job/rank_memory.h"
#include "tandem/job/ranks.h"
#include "tandem/kernels/score_kernels.h"
#include "tandem/memory/meter.h"

namespace tandem::job {
namespace {

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/// A few classes of a rank, beside which a backbone is measured.
constexpr int64_t kFewClasses = 2;

/// A hundredth more, for what is not in line: scratch of kernels, and blocks that are not of equal size.
constexpr int64_t kReserve = 100;

/// `points` numbers that are small, at a distance of `unit` from each other and of some units from `images`; or the
/// number itself if it is about as small.
std::vector<int64_t> few_images(int64_t images, int64_t unit, int64_t points) {
  if (images <= (points + 1) * unit) return {images};
  std::vector<int64_t> few;
  for (int64_t i = 1; i <= points; ++i) few.push_back(i * unit + images % unit);
  return few;
}

/// Ranks in a row have the same stage.
int ranks_of_stage(const Job& job) { return job.parallel.ranks / job.parallel.pipeline; }

}  // namespace

LargeRanks::LargeRanks(const Job& job, const DataShape& shape) : job_(job), shape_(shape) {
  const auto& parallel = job.parallel;
  const bool has_replicas = parallel.strategy->is_one_process;
  workers_ = has_replicas ? parallel.parts() : parallel.shares(parallel.ranks).workers();
  const int64_t parts = workers_ * job.training.micro_batches(parallel.ranks);
  images_ = (job.training.batch + parts - 1) / parts;
  job_.memory = {};
  job_.pipeline.cut = cut_of(job, shape);  // with fewer classes or images the stages would be others
}

/// Of the head, for so many images of a rank.
int64_t LargeRanks::samples(const Head& head, int64_t images) const {
  return head.form->is_whole && !job_.parallel.strategy->is_one_process ? images : images * workers_;
}

/// The rank that stands for it: the first of those that do the same, with the same stage of a pipeline.
int LargeRanks::like(int rank, const Head& head) const {
  if (only_serves(job_, rank, job_.parallel.ranks)) return rank;
  const int of_stage = ranks_of_stage(job_), first = rank / of_stage * of_stage;
  return head.form->gathers_scores ? std::min(rank, first + 1) : first;
}

memory::Levels LargeRanks::rehearse(const Head& head, int rank, Size size, bool has_backbone) const {
  auto job = job_;
  job.head = head;
  job.head.options =
      classifier::in_same_blocks(head.options, samples(head, images_), samples(head, size.images), size.features);
  if (size.images != images_) {
    job.training.batch = size.images * workers_ * job.training.micro_batches(job.parallel.ranks);
  }
  if (!has_backbone) {
    job.model.name = "none";
    job.model.is_identity = true;
    job.model.norm = models::Norm::batch;  // of this rank alone
    job.model.auxiliary = 0;
    if (divides_head(job_)) job.training.accumulate = 1;  // gradients are added block by block
    job.parallel.ranks = ranks_of_stage(job);
    job.parallel.pipeline = 1;
    rank %= job.parallel.ranks;
    job.search.reset();  // of what its passes keep of a head, the reserve is more
  }
  job.model.features = size.features;
  if (job.model.embedding > 0 || !has_backbone) job.model.embedding = size.features;
  const auto shards = std::max<int64_t>(job.training.shards, 1);
  const auto parts = static_cast<int64_t>(class_holders(job, job.parallel.ranks).size());
  const int64_t classes = head.form->is_whole ? size.classes : std::max(size.classes * parts, shards);
  const DataShape shape{classes, shape_for_model(job, shape_.image)};
  return rehearse_rank(job, shape, rank, even_counts(job, classes, job.parallel.ranks),
                       {.batches = job.data.prefetch + 1})
      .step.levels;
}

memory::Levels LargeRanks::rank(int rank, int64_t own_classes) {
  const auto& head = job_.head;
  const auto classes = head.form->is_whole ? shape_.classes : own_classes;
  auto levels = backbone(rank);
  if (has_head(job_, rank, job_.parallel.ranks)) {
    levels = memory::with_change(std::move(levels), block_number(kHeadBlock), classifier(head, rank, kFewClasses),
                                 classifier(head, rank, std::max(classes, kFewClasses)));
  }
  for (auto& level : levels) level.bytes[size_t(Category::activations)] += total_of(level.bytes) / kReserve;
  return levels;
}

RankPeak LargeRanks::peak(int rank, int64_t own_classes) {
  const auto levels = this->rank(rank, own_classes);
  const auto& highest = memory::highest_of(levels);
  const bool has_block = highest.block > 0;
  return {total_of(highest.bytes), has_block ? block_name(highest.block) : "optimizer"};
}

std::vector<RankPeak> LargeRanks::peaks(const std::vector<int64_t>& counts) {
  std::vector<RankPeak> all;
  for (size_t rank = 0; rank < counts.size(); ++rank) all.push_back(peak(static_cast<int>(rank), counts[rank]));
  return all;
}

memory::Levels LargeRanks::with_head(memory::Levels levels, int rank, const Head& head, int64_t own_classes) {
  if (!has_head(job_, rank, job_.parallel.ranks)) return levels;
  const auto classes = [&](const Head& of) { return of.form->is_whole ? shape_.classes : own_classes; };
  return memory::with_change(std::move(levels), block_number(kHeadBlock),
                             classifier(job_.head, rank, classes(job_.head)), classifier(head, rank, classes(head)));
}

/// With a few classes.
memory::Levels LargeRanks::backbone(int rank) {
  constexpr int64_t kImages = 8, kPoints = 3;
  const int of = like(rank, job_.head);
  const auto [place, is_new] = backbones_.try_emplace(of);
  if (!is_new) return place->second;
  std::vector<memory::SizedLevels> points;
  for (const auto images : few_images(images_, kImages, kPoints)) {
    points.push_back({images, rehearse(job_.head, of, {kFewClasses, images, job_.model.features}, true)});
  }
  return place->second = memory::extended(points, images_);
}

/// Of a job without a backbone.
memory::Levels LargeRanks::classifier(const Head& head, int rank, int64_t own_classes) {
  const int of = like(rank, head);
  const int64_t unit = unit_of_classes(head);
  if (own_classes <= 4 * unit) return few_classes(head, of, own_classes);
  std::vector<memory::SizedLevels> points;
  for (const int64_t units : {2, 3, 4}) points.push_back({units * unit, few_classes(head, of, units * unit)});
  return memory::extended(points, own_classes);
}

/// From two units on the classes of a rank are whole blocks, and more than those whose scores are kept.
int64_t LargeRanks::unit_of_classes(const Head& head) const {
  constexpr int64_t kFewest = 1 << 12, kRounds = 2, kMost = 1 << 18;
  if (head.form->gathers_scores) {  // of all ranks, on the first
    return std::max<int64_t>(1, kFewest / static_cast<int64_t>(class_holders(job_, job_.parallel.ranks).size()));
  }
  const auto round = classifier::block_rows(head.options, samples(head, images_)) * threads_of(job_.parallel);
  const double rate = head.options.sampling ? head.options.sampling->rate : 1;
  const double half_of_kept = static_cast<double>(classifier::most_kept(head.options, samples(head, images_))) / 2;
  auto scored = std::max(kFewest, kRounds * round);
  if (half_of_kept / rate < kMost) {  // more would be too much work
    scored = std::max(scored, static_cast<int64_t>(half_of_kept) + 1);
  }
  return static_cast<int64_t>(static_cast<double>(rounded_up(scored, round)) / rate);
}

memory::Levels LargeRanks::few_classes(const Head& head, int rank, int64_t own_classes) {
  const auto [place, is_new] = heads_.try_emplace({head.form, head.options.blocks.keep_bytes,
                                                   head.options.sampling ? head.options.sampling->rate : 1,
                                                   head.steps_in_backward, head.moves_all_rows, rank, own_classes});
  if (is_new) place->second = all_features(head, rank, own_classes);
  return place->second;
}

memory::Levels LargeRanks::all_features(const Head& head, int rank, int64_t own_classes) {
  const int64_t few = head.options.blocks.bf16 ? 16 : 4, features = job_.model.features;
  if (features <= 2 * few) return few_features(head, rank, own_classes, features);
  const std::vector<memory::SizedLevels> points = {{few, few_features(head, rank, own_classes, few)},
                                                   {2 * few, few_features(head, rank, own_classes, 2 * few)}};
  return memory::extended(points, features);
}

memory::Levels LargeRanks::few_features(const Head& head, int rank, int64_t own_classes, int64_t features) {
  constexpr int64_t kPoints = 2, kColumns = kernels::kColumnUnit;
  const auto unit = kColumns / std::gcd(kColumns, samples(head, 1));
  std::vector<memory::SizedLevels> points;
  for (const auto images : few_images(images_, unit, kPoints)) {
    points.push_back({images, rehearse(head, rank, {own_classes, images, features}, false)});
  }
  return memory::extended(points, images_);
}

}  // namespace tandem::job
