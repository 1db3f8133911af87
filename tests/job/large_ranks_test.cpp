#include "tandem/job/large_ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"

namespace tandem::job {
namespace {

/// Bytes of a rank, in line with smaller jobs and of itself.
struct Compared {
  CategoryBytes about{}, exact{};
};

std::vector<Compared> compare(const Words& words, int64_t classes) {
  memory::install_meter();
  const auto job = job_of(with({"threads=1", "data=synthetic", "head.classes=" + std::to_string(classes)}, words));
  const auto shape = shape_of(job);
  LargeRanks large(job, shape);
  std::vector<Compared> ranks;
  std::thread([&] {  // of one compute thread, as the job has
    at::set_num_threads(1);
    const auto counts = even_counts(job, classes, job.parallel.ranks);
    for (int rank = 0; rank < job.parallel.ranks; ++rank) {
      const auto own = rehearse_rank(job, shape, rank, counts, {.batches = job.data.prefetch + 1});
      ranks.push_back(
          {memory::highest_of(large.rank(rank, counts[static_cast<size_t>(rank)])).bytes, own.step.account.at_peak});
    }
  })
      .join();
  return ranks;
}

/// At least the exact bytes, and at most so many per cent more.
void expect_near(const Words& words, int64_t classes, double percent) {
  const auto ranks = compare(words, classes);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    SCOPED_TRACE(testing::PrintToString(words) + " rank " + std::to_string(rank));
    const auto about = total_of(ranks[rank].about), exact = total_of(ranks[rank].exact);
    EXPECT_GE(about, exact);
    EXPECT_LE(static_cast<double>(about), static_cast<double>(exact) * (1 + percent / 100));
  }
}

/// More images, features and classes than are rehearsed for the line.
const Words kHead = {"model=none", "embedding=40", "train.batch=150", "ranks=2"};

TEST(LargeRanks, ParametersAreExact) {
  for (const auto& [about, exact] : compare(with(kHead, {"train.optimizer=adamw"}), 100000)) {
    for (const auto category : {Category::parameters, Category::gradients, Category::optimizer, Category::buffers}) {
      EXPECT_EQ(about[static_cast<size_t>(category)], exact[static_cast<size_t>(category)]);
    }
  }
}

TEST(LargeRanks, OfHeadsAreBounds) {
  for (const Words& head : std::vector<Words>{{},
                                              {"head.fused_update=true"},
                                              {"head.keep_bytes=2M"},
                                              {"head.sample=0.2"},
                                              {"head.sample=0.2", "head.fused_update=true"},
                                              {"head.parallel=naive"},
                                              {"head.parallel=replicated"},
                                              {"head.precision=bf16"},
                                              {"train.precision=float64"}}) {
    expect_near(with(kHead, head), 100000, 2.5);
  }
}

TEST(LargeRanks, OfBackbonesAreBounds) {
  for (const std::string model : {"mlp", "resnet_glyph", "resnet18"}) {
    expect_near({"model=" + model, "embedding=128", "train.batch=96", "ranks=2"}, 20000, 2.5);
  }
  expect_near({"model=resnet_glyph", "embedding=128", "train.batch=256"}, 20000, 2.5);
}

TEST(LargeRanks, OfStrategiesAreBounds) {
  for (const Words& words : std::vector<Words>{{"parallel=ddp", "ddp.hook=powersgd"},
                                               {"parallel=zero1"},
                                               {"parallel=zero2"},
                                               {"parallel=fsdp"},
                                               {"parallel=fsdp", "head.parallel=replicated"},
                                               {"parallel=ps"},
                                               {"parallel=ps", "ps.update=server", "ps.servers=1"},
                                               {"parallel=local-sgd"},
                                               {"parallel=diloco"},
                                               {"parallel=dp"},
                                               {"train.accumulate=2"},
                                               {"train.shards=6"},
                                               {"train.clip=1"}}) {
    expect_near(with({"model=mlp", "embedding=64", "train.batch=180", "ranks=3"}, words), 60000, 2.5);
  }
  const Words async = {"parallel=ps", "ps.mode=async", "head.parallel=replicated"};  // whose messages do not grow
  expect_near(with({"model=mlp", "embedding=64", "train.batch=180", "ranks=3"}, async), 60000, 25);
}

Job small_job(const Words& words = {}) {
  return job_of(with({"model=mlp", "embedding=16", "train.batch=16", "ranks=2"}, words));
}

RankPeak peak_of(const Job& job) { return LargeRanks(job, {50, {1, 16, 16}}).peak(0, 25); }

TEST(LargeRanks, LeaveTheBooksOfEveryRankAlone) {
  memory::install_meter();
  const RankScope rank(1023);  // the last there is
  auto large = at::empty({1 << 20}, at::kFloat);
  large.reset();
  const auto before = memory::account(1023);
  peak_of(small_job());
  EXPECT_EQ(memory::account(1023).live, before.live);
  EXPECT_EQ(memory::account(1023).at_peak, before.at_peak);
}

TEST(LargeRanks, MayHaveOneImageEachIfTheyShareStatistics) {
  memory::install_meter();
  const auto peak = [](const std::string& norm) {
    return peak_of(small_job({"model=resnet_glyph", "train.batch=2", "model.norm=" + norm}));
  };
  EXPECT_GT(peak("sync").bytes, 0);
  EXPECT_THROW(peak("batch"), SettingsError);
}

}  // namespace
}  // namespace tandem::job
