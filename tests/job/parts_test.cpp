#include "tandem/job/parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"
#include "tests/train/loss_recorder.h"

namespace tandem::job {
namespace {

std::vector<double> losses_of(const std::vector<std::string>& words) {
  memory::install_meter();
  const Patterns patterns;
  const auto job = job_of(words);
  std::vector<double> losses;
  comm::run_ranks(job.parallel.ranks,
                  [&](comm::ProcessGroup& group) {
                    const auto loader = training_loader(job, patterns, group),
                               test = evaluation_loader(job, patterns, group);
                    const auto shape = shape_of(job, patterns);
                    const TaskPlan plan{comm::split_sizes(shape.classes, group.size()),
                                        choose_recomputation(job, shape, group).plan};
                    const auto [mesh, task, trace, step, search] = assemble(job, shape, plan, group);
                    const auto options = trainer_options(job, loader->batches_per_epoch());
                    train::LossRecorder recorder;
                    train::Trainer(*step, *loader, test.get(), options, nullptr, group).run(recorder);
                    if (group.rank() == 0) losses = recorder.losses;
                  },
                  {.threads = 1});
  return losses;
}

/// Of two epochs on three ranks.
std::vector<double> losses_with(const std::string& form) {
  return losses_of({"model=mlp", "train.precision=float64", "train.batch=10", "train.lr=0.05", "embedding=16",
                    "train.log_every=1", "train.epochs=2", "ranks=3", "head.parallel=" + form});
}

TEST(Parts, BothFormsOfTheHeadAgree) {
  const auto sharded = losses_with("sharded"), naive = losses_with("naive");
  ASSERT_EQ(sharded.size(), 20u);
  for (size_t step = 0; step < 20; ++step) EXPECT_NEAR(sharded[step], naive[step], 1e-10);
}

TEST(Parts, WithSharedStatisticsTheNumberOfRanksChangesNoLoss) {
  for (const std::string recompute : {"none", "log"}) {
    const auto losses = [&](const std::string& norm, const std::string& ranks) {
      return losses_of({"model=resnet_glyph", "train.precision=float64", "train.lr=0.05", "embedding=16",
                        "train.log_every=1", "train.steps=6", "train.batch=7", "model.norm=" + norm, "ranks=" + ranks,
                        "recompute=" + recompute});
    };
    const auto one = losses("batch", "1");
    ASSERT_EQ(one.size(), 6U);
    for (const std::string ranks : {"1", "3", "5"}) {
      const auto shared = losses("sync", ranks);
      for (size_t step = 0; step < one.size(); ++step) EXPECT_NEAR(shared[step], one[step], 1e-10) << ranks;
    }
    EXPECT_GT(std::abs(losses("batch", "3")[5] - one[5]), 1e-6);  // each rank's own statistics are others
  }
}

/// Rank 2 has one image, and none in the second micro-batch.
TEST(Parts, WithSharedStatisticsARankMayHaveAnEmptyMicroBatch) {
  const auto losses = losses_of({"model=resnet_glyph", "model.norm=sync", "embedding=16", "train.log_every=1",
                                 "train.steps=3", "train.batch=5", "train.accumulate=2", "ranks=3"});
  ASSERT_EQ(losses.size(), 3U);
  for (const double loss : losses) EXPECT_TRUE(std::isfinite(loss));
}

/// Peak bytes of each of four ranks in one step with 2,002 classes: 501, 501, 500 and 500 of them.
std::array<int64_t, 4> peaks_of_a_step(const HeadForm& form) {
  memory::install_meter();
  const auto job =
      with_form(job_of({"model=mlp", "train.batch=40", "embedding=16", "head.classes=2002", "ranks=4"}), form);
  const Patterns patterns;
  std::array<int64_t, 4> peaks{};
  comm::run_ranks(4,
                  [&](comm::ProcessGroup& group) {
                    const RankScope scope(group.rank());
                    const auto loader = training_loader(job, patterns, group);
                    const auto mesh = make_mesh(job, group);
                    const auto task = make_task(job, shape_of(job, patterns), even_counts(job, 2002, 4), *mesh);
                    EXPECT_EQ(task->parameters().back().name, kHeadWeight);
                    EXPECT_EQ(task->parameters().back().placement.splits.at(0).count, group.rank() < 2 ? 501 : 500);
                    loader->start(0);
                    data::Batch batch;
                    ASSERT_TRUE(loader->next(batch));
                    comm::barrier(group);
                    memory::reset_peak(group.rank());
                    task->loss(batch, comm::split_sizes(batch.global_size, group.size())).backward();
                    peaks.at(group.rank()) = memory::account(group.rank()).peak_bytes();
                  },
                  {.threads = 1});
  return peaks;
}

TEST(Parts, TheHeadIsBalancedAndTheNaiveFormIsNot) {
  using Peaks = std::array<int64_t, 4>;
  // A class more takes 132 bytes: a row of weight and of gradient, 64 each, and the length of the row.
  EXPECT_EQ(peaks_of_a_step(head_form("sharded")), (Peaks{774492, 774492, 774360, 774360}));
  // The scores of the others, 1,501 x 40, are 240,160 bytes.
  EXPECT_EQ(peaks_of_a_step(head_form("naive")), (Peaks{1306840, 994544, 993320, 993320}));
}

}  // namespace
}  // namespace tandem::job
