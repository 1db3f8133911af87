#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"
#include "tests/job/step_peaks.h"
#include "tests/support/text_of.h"

// The peak that is predicted of a step with settings that change what it holds.
namespace tandem::job {
namespace {

TEST(RankMemory, KnowsMicroBatchesClippingAndSkippedSteps) {
  for (const std::string more : {"train.accumulate=2", "train.accumulate=3", "train.clip=1", "train.skip_nonfinite=2",
                                 "data.prefetch=0", "train.optimizer=adamw", "train.momentum=0"}) {
    for (const std::string ranks : {"1", "3"}) {
      const auto peaks = peaks_of(
          {"model=resnet_glyph", "train.batch=23", "head.classes=301", "train.nesterov=false", more, "ranks=" + ranks});
      for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << more << ' ' << ranks;
    }
  }
}

TEST(RankMemory, KnowsTheOptionsOfDdp) {
  for (const std::string more : {"ddp.hook=fp16", "ddp.hook=bf16", "ddp.bucket=64K", "ddp.bucket_view=false",
                                 "ddp.unused=find", "ddp.unused=static", "ddp.buffers=steps"}) {
    const auto peaks = peaks_of({"model=resnet_glyph", "train.batch=23", "head.classes=301", "ranks=3", more});
    for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << more;
  }
}

/// In steps apart the gradients lie in the same buckets.
TEST(RankMemory, KnowsPostLocalSgd) {
  for (const std::string start : {"0", "1", "2"}) {
    for (const std::string more : {"train.accumulate=1", "train.accumulate=2", "head.parallel=replicated"}) {
      const auto peaks = peaks_of({"model=resnet_glyph", "train.batch=23", "head.classes=301", "ranks=3",
                                   "ddp.hook=post-local-sgd", "ddp.local_every=2", "ddp.local_start=" + start, more});
      for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << start << ' ' << more;
    }
  }
}

TEST(RankMemory, KnowsFloat16AndItsLossScale) {
  for (const std::string model : {"mlp", "resnet_glyph"}) {
    for (const std::string more : {"train.skip_nonfinite=0", "train.loss_scale=auto", "train.accumulate=3",
                                   "parallel=fsdp", "parallel=zero1", "train.clip=1"}) {
      const auto peaks = peaks_of({"model=" + model, "embedding=24", "train.batch=23", "head.classes=301", "ranks=2",
                                   "train.precision=float16", "train.loss_scale=8", more});
      for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << model << ' ' << more;
    }
  }
}

TEST(RankMemory, KnowsMicroBatchesOfDifferentSizes) {
  for (const std::string parts : {"2", "4", "5"}) {
    const auto peaks =
        peaks_of({"model=resnet_glyph", "train.batch=21", "head.classes=301", "train.accumulate=" + parts});
    EXPECT_EQ(peaks[0].predicted, peaks[0].measured) << parts;
  }
}

/// Blocks that the ranks do not divide evenly, and copies of what they divide.
TEST(RankMemory, KnowsWhatTheRanksDivide) {
  const std::vector<std::string> all = {"train.accumulate=1", "train.accumulate=3",    "train.clip=1",
                                        "recompute=log",      "train.optimizer=adamw", "train.precision=bf16",
                                        "model.norm=sync",    "train.skip_nonfinite=1"};
  for (const std::string parallel : {"zero1", "zero2", "fsdp"}) {
    for (const std::string model : {"mlp", "resnet_glyph"}) {
      for (const auto& more : all) {
        if (parallel != "fsdp" && more != "train.accumulate=3" && more != "recompute=log") continue;
        const bool has_copies = parallel == "fsdp" && more == all[0];
        const auto peaks = peaks_of({"model=" + model, "parallel=" + parallel, "embedding=25", "train.batch=23",
                                     "head.classes=301", "train.nesterov=false", more,
                                     has_copies ? "ranks=4" : "ranks=3", has_copies ? "mesh.shard=2" : "mesh.shard=0"});
        for (const auto& [predicted, measured] : peaks) {
          EXPECT_EQ(predicted, measured) << parallel << ' ' << model << ' ' << more;
        }
      }
    }
  }
}

/// Ranks along tensor bring parts of the same rows to the head, or hold copies of it.
TEST(RankMemory, KnowsRanksAlongTensor) {
  for (const std::string head : {"head.over=all", "head.over=data", "head.parallel=naive", "head.parallel=replicated",
                                 "head.fused_update=true"}) {
    for (const std::string more :
         {"parallel=tensor", "train.accumulate=1", "train.accumulate=3", "train.clip=1", "train.optimizer=adamw"}) {
      const std::string mesh = more == "parallel=tensor" ? "mesh.pipeline=1" : "mesh.tensor=2";
      if (head == "head.over=data" && more == "parallel=tensor") continue;  // there is no data axis
      if (head == "head.fused_update=true" && more != "parallel=tensor" && more != "train.accumulate=1") continue;
      const auto peaks = peaks_of({"model=none", "embedding=64", "train.batch=23", "head.classes=301",
                                   "train.nesterov=false", "ranks=4", mesh, head, more});
      for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << head << ' ' << more;
    }
  }
}

/// Of which a step scores some: at most as many as the largest draw.
TEST(RankMemory, KnowsCopiesOfSampledClasses) {
  constexpr int64_t kRow = 64 * 4, kCopies = 4;  // as RankMemory.OfSampledClassesIsABound
  const auto peaks = peaks_of({"model=none", "embedding=64", "train.batch=23", "head.classes=301", "ranks=4",
                               "mesh.tensor=2", "head.over=data", "head.sample=0.3"});
  for (const auto& [predicted, measured] : peaks) {
    EXPECT_GE(predicted, measured);
    EXPECT_LE(predicted, measured + 301 * kCopies * 2 * kRow);
  }
}

TEST(RankMemory, KnowsHowBlocksAreGathered) {
  for (const std::string model : {"mlp", "resnet_glyph"}) {
    for (const std::string reshard : {"true", "false", "2"}) {
      for (const std::string more :
           {"fsdp.prefetch=true", "fsdp.prefetch=false", "recompute=log", "train.accumulate=2"}) {
        for (const std::string precision : {"float32", "bf16"}) {
          const auto peaks =
              peaks_of({"model=" + model, "parallel=fsdp", "embedding=25", "train.batch=23", "head.classes=301",
                        "ranks=4", "fsdp.reshard=" + reshard, more, "train.precision=" + precision});
          for (const auto& [predicted, measured] : peaks) {
            EXPECT_EQ(predicted, measured) << model << ' ' << reshard << ' ' << more << ' ' << precision;
          }
        }
      }
    }
  }
}

/// Ranks that only serve have no images, and the last rank a smaller part of the parameters.
TEST(RankMemory, KnowsServers) {
  const std::vector<std::string> all = {"train.accumulate=1",    "train.accumulate=3",     "train.clip=1",
                                        "train.optimizer=adamw", "train.precision=bf16",   "head.parallel=replicated",
                                        "ps.aggregate=median",   "train.skip_nonfinite=1", "embedding=900",
                                        "model=resnet_glyph"};
  for (const std::string update : {"worker", "server"}) {
    for (const std::string servers : {"0", "1", "2"}) {
      for (const auto& more : all) {
        const auto peaks =
            peaks_of({"model=mlp", "parallel=ps", "embedding=25", "train.batch=23", "head.classes=301",
                      "train.nesterov=false", "ranks=4", "ps.servers=" + servers, "ps.update=" + update, more});
        for (const auto& [predicted, measured] : peaks) {
          EXPECT_EQ(predicted, measured) << update << ' ' << servers << ' ' << more;
        }
      }
    }
  }
}

/// An exchange may meet the highest moment of forward and backward, and is predicted to; or not.
TEST(RankMemory, KnowsServersThatNobodyWaitsFor) {
  constexpr int64_t kMessage = 1 << 20;
  for (const std::string staleness : {"1", "3"}) {
    for (const std::string servers : {"0", "2"}) {
      for (const std::string more : {"train.accumulate=1", "train.accumulate=3", "train.optimizer=adamw",
                                     "train.precision=bf16", "embedding=900", "model=resnet_glyph"}) {
        const auto peaks = peaks_of({"model=mlp", "parallel=ps", "embedding=25", "train.batch=23", "head.classes=301",
                                     "train.nesterov=false", "ranks=4", "head.parallel=replicated", "ps.mode=async",
                                     "ps.servers=" + servers, "ps.staleness=" + staleness, more});
        for (const auto& [predicted, measured] : peaks) {
          EXPECT_LE(measured, predicted) << staleness << ' ' << servers << ' ' << more;
          EXPECT_LE(predicted, measured + 2 * kMessage) << staleness << ' ' << servers << ' ' << more;
        }
      }
    }
  }
}

/// With accumulate=8 the last rank of three has seven images, and an empty micro-batch.
TEST(RankMemory, KnowsStatisticsOfAllRanks) {
  for (const std::string more : {"train.accumulate=1", "train.accumulate=3", "recompute=log", "train.precision=float64",
                                 "train.precision=bf16", "train.accumulate=8"}) {
    for (const std::string ranks : {"1", "3"}) {
      const auto peaks = peaks_of({"model=resnet_glyph", "model.norm=sync", "embedding=24", "train.batch=23",
                                   "head.classes=301", "ranks=" + ranks, more});
      for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << more << ' ' << ranks;
    }
  }
}

/// A frozen part makes no gradients, and those in front of all others keep nothing for backward.
TEST(RankMemory, KnowsFrozenParameters) {
  for (const std::string frozen : {"conv1,bn1,layer1", "layer2", "conv1,bn1,layer,embedding"}) {
    for (const std::string more : {"train.clip=1", "train.optimizer=adamw", "train.accumulate=3", "recompute=log"}) {
      for (const std::string ranks : {"1", "3"}) {
        const auto peaks = peaks_of({"model=resnet_glyph", "embedding=24", "train.batch=19", "head.classes=301",
                                     "ranks=" + ranks, "model.freeze=" + frozen, more});
        for (const auto& [predicted, measured] : peaks) {
          EXPECT_EQ(predicted, measured) << frozen << ' ' << more << ' ' << ranks;
        }
      }
    }
  }
}

/// Gradients of the block behind it travel no further.
TEST(RankMemory, KnowsAFrozenBlockInTheMiddle) {
  for (const std::string strategy : {"zero1", "zero2", "fsdp"}) {
    for (const auto& job : std::vector<Words>{
             {"model=mlp", "model.freeze=fc2"},
             {"model=resnet_glyph", "model.freeze=layer3"},
             {"model=resnet_glyph", "model.freeze=layer2", "recompute=sqrt", "train.precision=float64"}}) {
      const auto words = with({"parallel=" + strategy, "ranks=2", "embedding=32", "train.batch=16"}, job);
      SCOPED_TRACE(testing::PrintToString(words));
      for (const auto& [predicted, measured] : peaks_of(words)) EXPECT_EQ(predicted, measured);
    }
  }
}

/// A step's loss is a number a shard, and sums are made after each micro-batch.
void expect_shards_are_known(const std::string& strategy, const Words& job) {
  for (const std::string more :
       {"train.clip=1", "train.precision=float16", "embedding=900", "model.freeze=embedding"}) {
    const auto words = with({"parallel=" + strategy, "embedding=24", "train.batch=24", "head.classes=301", more}, job);
    SCOPED_TRACE(testing::PrintToString(words));
    for (const auto& [predicted, measured] : peaks_of(words)) EXPECT_EQ(predicted, measured);
  }
}

TEST(RankMemory, KnowsShards) {
  for (const auto& strategy : parallel::strategies()) {
    if (!strategy.sums_in_order) continue;
    for (const auto& job : std::vector<Words>{{"model=mlp", "ranks=1", "train.shards=6"},
                                              {"model=mlp", "ranks=2", "train.shards=2"},
                                              {"model=mlp", "ranks=2", "train.shards=6"},
                                              {"model=resnet_glyph", "ranks=3", "train.shards=12"}}) {
      expect_shards_are_known(std::string(strategy.name), job);
    }
  }
}

TEST(RankMemory, KnowsGhostNorms) {
  for (const std::string more : {"train.accumulate=1", "train.precision=float64", "train.precision=bf16"}) {
    for (const std::string ranks : {"1", "3"}) {
      const auto peaks = peaks_of({"model=resnet_glyph", "model.norm=ghost", "model.ghost=5", "embedding=24",
                                   "train.batch=24", "head.classes=301", "ranks=" + ranks, more});
      for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << more << ' ' << ranks;
    }
  }
}

TEST(RankMemory, AGhostOfOneImageIsASettingsError) {
  EXPECT_EQ(
      test::text_of<SettingsError>([] {
        peaks_of({"model=resnet_glyph", "model.norm=ghost", "model.ghost=23", "train.batch=24"});
      }),
      "model.ghost is 23 with train.batch 24 and ranks 1, which leaves one image on its own, wanted more for model "
      "resnet_glyph: change model.ghost or train.batch");
}

/// A rehearsal reads its sampled rows more than once before a step ends.
TEST(RankMemory, KnowsSampledRowsThatDecayLate) {
  memory::install_meter();
  const Patterns patterns;
  for (const std::string fused : {"false", "true"}) {
    const auto job = job_of({"model=mlp", "train.batch=23", "head.classes=301", "head.sample=0.5", "head.lazy=exact",
                             "head.fused_update=" + fused});
    EXPECT_GT(rehearse_rank(job, shape_of(job, patterns), 0, {{301}}, {4, 100}).peak().bytes, 0);
  }
}

/// What the models' mean takes when the gradients are gone is the most that a step holds of few small images.
TEST(RankMemory, KnowsMeetings) {
  for (const Words& strategy : std::vector<Words>{{"ddp.hook=post-local-sgd", "ddp.local_start=1"},
                                                  {"parallel=local-sgd", "local_sgd.every=2"},
                                                  {"parallel=diloco", "diloco.every=1"}}) {
    const auto words = with({"model=resnet_glyph", "embedding=14", "train.batch=6", "head.classes=44", "ranks=2",
                             "model.norm=group", "train.precision=float64"},
                            strategy);
    SCOPED_TRACE(testing::PrintToString(words));
    for (const auto& [predicted, measured] : peaks_of(words)) EXPECT_EQ(predicted, measured);
  }
}

}  // namespace
}  // namespace tandem::job
