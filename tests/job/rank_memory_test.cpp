#include "tandem/job/rank_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"

namespace tandem::job {
namespace {

struct Peaks {
  int64_t predicted = 0, measured = 0;
};

/// Of each rank of a job of four steps.
std::vector<Peaks> peaks_of(std::vector<std::string> words) {
  memory::install_meter();
  words.insert(words.end(), {"train.steps=4", "threads=1"});
  const Patterns patterns;
  const auto job = job_of(words);
  const auto shape = shape_of(job, patterns);
  std::vector<Peaks> peaks(static_cast<size_t>(job.parallel.ranks));
  comm::run_ranks(job.parallel.ranks,
                  [&](comm::ProcessGroup& group) {
                    auto& own = peaks[static_cast<size_t>(group.rank())];
                    const auto loader = training_loader(job, patterns, group);
                    const auto counts = comm::split_sizes(shape.classes, group.size());
                    const int64_t batches = loader->batches_per_epoch();
                    own.predicted =
                        rehearse_rank(job, shape, group.rank(), counts, {batches}).step.account.peak_bytes();
                    const auto task = make_task(job, shape, counts, group);
                    const auto step = make_step(job, shape, *task, group, group);
                    train::Trainer trainer(*step, *loader, nullptr, trainer_options(job, batches), nullptr, group);
                    train::Observer nobody;
                    own.measured = trainer.run(nobody).memory.peak_bytes();
                  },
                  {.threads = 1});
  return peaks;
}

TEST(RankMemory, OfOneRankIsPredictedToTheByte) {
  for (const std::string model : {"mlp", "resnet_glyph", "resnet18", "none"}) {
    for (const std::string head : {"head.parallel=sharded", "head.fused_update=true", "head.parallel=naive"}) {
      for (const std::string precision : {"float32", "float64"}) {
        const auto embedding = model == "none" ? "embedding=64" : "embedding=24";
        const auto peaks = peaks_of(
            {"model=" + model, head, embedding, "train.batch=13", "head.classes=301", "train.precision=" + precision});
        EXPECT_EQ(peaks[0].predicted, peaks[0].measured) << model << ' ' << head << ' ' << precision;
      }
    }
  }
}

TEST(RankMemory, OfSeveralRanksIsAtMostAKibibyteMore) {
  for (const std::string model : {"mlp", "resnet_glyph", "none"}) {
    for (const std::string head : {"head.parallel=sharded", "head.fused_update=true", "head.parallel=naive"}) {
      for (const std::string ranks : {"2", "3", "4"}) {
        const auto embedding = model == "none" ? "embedding=64" : "embedding=24";
        const auto peaks =
            peaks_of({"model=" + model, head, embedding, "train.batch=23", "head.classes=301", "ranks=" + ranks});
        for (const auto& [predicted, measured] : peaks) {
          EXPECT_EQ(predicted, measured) << model << ' ' << head << ' ' << ranks;
          EXPECT_LE(predicted, measured + 1024) << model << ' ' << head << ' ' << ranks;
        }
      }
    }
  }
}

TEST(RankMemory, KnowsMicroBatchesClippingAndSkippedSteps) {
  for (const std::string more : {"train.accumulate=3", "train.clip=1", "train.skip_nonfinite=2", "data.prefetch=0",
                                 "train.optimizer=adamw", "train.momentum=0"}) {
    for (const std::string ranks : {"1", "3"}) {
      const auto peaks = peaks_of(
          {"model=resnet_glyph", "train.batch=23", "head.classes=301", "train.nesterov=false", more, "ranks=" + ranks});
      for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << more << ' ' << ranks;
    }
  }
}

/// A rehearsal reads its sampled rows more than once before a step ends.
TEST(RankMemory, KnowsSampledRowsThatDecayLate) {
  memory::install_meter();
  const Patterns patterns;
  for (const std::string fused : {"false", "true"}) {
    const auto job = job_of({"model=mlp", "train.batch=23", "head.classes=301", "head.sample=0.5", "head.lazy=exact",
                             "head.fused_update=" + fused});
    EXPECT_GT(rehearse_rank(job, shape_of(job, patterns), 0, {301}, {4, 100}).peak().bytes, 0);
  }
}

TEST(RankMemory, OfLargerJobsIsWithinTheTargetsThatOtherRanksHave) {
  for (const std::string more : {"head=arcface", "head=softmax", "head.smoothing=0.1", "head.keep_bytes=0",
                                 "train.precision=bf16", "head.precision=bf16"}) {
    const auto peaks = peaks_of({"model=none", "embedding=64", "train.batch=97", "head.classes=3001", "ranks=3", more});
    for (const auto& [predicted, measured] : peaks) {
      EXPECT_GE(predicted, measured) << more;
      EXPECT_LE(predicted, measured + 1024) << more;
    }
  }
}

}  // namespace
}  // namespace tandem::job
