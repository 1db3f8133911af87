#include "tandem/job/rank_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/job/rank_facts.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"
#include "tests/support/text_of.h"

namespace tandem::job {
namespace {

struct Peaks {
  int64_t predicted = 0, measured = 0;
};

/// A batch of 512 has more numbers than an MLP makes of it, gradients included.
struct LargePatterns : Patterns {
  int64_t size() const override { return 1536; }
  std::array<int64_t, 3> image_shape() const override { return {3, 32, 32}; }
};

/// Of each rank of a job of four steps.
std::vector<Peaks> peaks_of(std::vector<std::string> words, const data::Dataset& patterns = Patterns(),
                            comm::WorldOptions world = {}) {
  memory::install_meter();
  words.insert(words.end(), {"train.steps=4", "threads=1"});
  auto job = job_of(words);
  job.parallel.transport = world.transport.value_or(comm::Transport::memory);
  const auto shape = shape_of(job, patterns);
  std::vector<Peaks> peaks(static_cast<size_t>(job.parallel.ranks));
  world.threads = 1;
  comm::run_ranks(
      job.parallel.ranks,
      [&](comm::ProcessGroup& group) {
        auto& own = peaks[static_cast<size_t>(group.rank())];
        const auto loader = training_loader(job, patterns, group);
        const TaskPlan plan{even_counts(job, shape.classes, group.size()),
                            choose_recomputation(job, shape, group).plan};
        const int64_t batches = loader->batches_per_epoch();
        own.predicted = rehearse_rank(job, shape, group.rank(), plan, {batches}).step.account.peak_bytes();
        const auto [mesh, task, step] = assemble(job, shape, plan, group);
        train::Trainer trainer(*step, *loader, nullptr, trainer_options(job, batches), nullptr, group);
        train::Observer nobody;
        own.measured = trainer.run(nobody).memory.peak_bytes();
      },
      world);
  return peaks;
}

TEST(RankMemory, OfOneRankIsPredictedToTheByte) {
  for (const std::string model : {"mlp", "resnet_glyph", "none"}) {
    for (const std::string head :
         {"head.parallel=sharded", "head.fused_update=true", "head.parallel=naive", "head.parallel=replicated"}) {
      for (const std::string precision : {"float32", "float64"}) {
        const auto embedding = model == "none" ? "embedding=64" : "embedding=24";
        const auto peaks = peaks_of(
            {"model=" + model, head, embedding, "train.batch=13", "head.classes=301", "train.precision=" + precision});
        EXPECT_EQ(peaks[0].predicted, peaks[0].measured) << model << ' ' << head << ' ' << precision;
      }
    }
  }
}

TEST(RankMemory, OfResidualNetworksIsPredictedToTheByte) {
  for (const std::string model : {"resnet18", "resnet50"}) {
    const auto peaks = peaks_of({"model=" + model, "embedding=24", "train.batch=5"});
    EXPECT_EQ(peaks[0].predicted, peaks[0].measured) << model;
  }
}

TEST(RankMemory, OfSeveralRanksIsPredictedToTheByte) {
  for (const std::string model : {"mlp", "resnet_glyph", "none"}) {
    for (const std::string head :
         {"head.parallel=sharded", "head.fused_update=true", "head.parallel=naive", "head.parallel=replicated"}) {
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

/// The batch of several ranks, or of the replicas of one.
int64_t world_of(const parallel::Strategy& strategy, int ranks) { return strategy.is_one_process ? 1 : ranks; }

/// A wide embedding, so that what travels at the end of a step is the most that it holds.
TEST(RankMemory, OfEachStrategyIsPredictedToTheByte) {
  for (const auto& strategy : parallel::strategies()) {
    for (const std::string head : {"head.parallel=sharded", "head.parallel=replicated"}) {
      for (const std::string more : {"train.accumulate=1", "train.accumulate=2", "embedding=900"}) {
        const auto peaks =
            peaks_of({"parallel=" + std::string(strategy.name), "model=mlp", head, "embedding=24", more,
                      "local_sgd.every=2", "diloco.every=2", "train.batch=23", "head.classes=301", "ranks=3"});
        ASSERT_EQ(static_cast<int64_t>(peaks.size()), world_of(strategy, 3));
        for (const auto& [predicted, measured] : peaks) {
          EXPECT_EQ(predicted, measured) << strategy.name << ' ' << head << ' ' << more;
        }
      }
    }
  }
}

/// Parts of 301 classes and of the parameters do not have equal sizes. On one host processes need what threads do. Over
/// sockets, what travels beside forward and backward may meet the highest moment, and is predicted to; or not. Numbers
/// that have travelled, such as losses, may live a moment longer.
TEST(RankMemory, OfProcessesIsPredicted) {
  constexpr int64_t kExchange = 1 << 20, kNumbers = 64;
  const std::vector<std::string> more = {"train.accumulate=1", "head.parallel=replicated",
                                         "embedding=900",      "ps.update=server",
                                         "ps.servers=1",       "ddp.hook=fp16"};
  for (const auto& strategy : parallel::strategies()) {
    if (strategy.is_one_process) continue;
    for (const auto& one : more) {
      const std::vector<std::string> words = {"parallel=" + std::string(strategy.name),
                                              "model=mlp",
                                              "embedding=24",
                                              "local_sgd.every=2",
                                              "diloco.every=2",
                                              "train.batch=23",
                                              "head.classes=301",
                                              "ranks=3",
                                              one};
      for (const auto& [predicted, measured] : peaks_of(words, Patterns(), {.transport = comm::Transport::segments})) {
        EXPECT_EQ(measured, predicted) << strategy.name << ' ' << one;
      }
      const bool divides = strategy.mesh(3, {}).shard > 1;
      for (const auto& [predicted, measured] : peaks_of(words, Patterns(), {.transport = comm::Transport::sockets})) {
        EXPECT_LE(measured, predicted + kNumbers) << strategy.name << ' ' << one;
        EXPECT_LE(predicted, measured + (divides ? kExchange : 0)) << strategy.name << ' ' << one;
      }
    }
  }
}

/// With one thread, replicas in one process take turns.
TEST(RankMemory, OfReplicasInOneProcessIsPredictedToTheByte) {
  for (const std::string model : {"mlp", "resnet_glyph", "none"}) {
    for (const std::string more : {"recompute=none", "recompute=sqrt", "train.accumulate=3", "train.batch=2"}) {
      for (const std::string ranks : {"1", "2", "3"}) {
        if (model == "resnet_glyph" && more == "train.batch=2") continue;  // one image of a norm
        const auto embedding = model == "none" ? "embedding=64" : "embedding=24";
        const auto peaks = peaks_of(
            {"model=" + model, embedding, "train.batch=23", "head.classes=301", "parallel=dp", "ranks=" + ranks, more});
        ASSERT_EQ(peaks.size(), 1U);
        EXPECT_EQ(peaks[0].predicted, peaks[0].measured) << model << ' ' << more << ' ' << ranks;
      }
    }
  }
}

TEST(RankMemory, PlansOfRecomputationActInsideOfReplicas) {
  const auto saved = [](const std::string& strategy, const std::string& ranks) {
    const auto peak = [&](const std::string& recompute) {
      return peaks_of({"model=resnet_glyph", "train.batch=100", "head.classes=301", "parallel=" + strategy,
                       "ranks=" + ranks, "recompute=" + recompute})[0]
          .measured;
    };
    return peak("none") - peak("sqrt");
  };
  EXPECT_GT(saved("ddp", "1"), 100'000);
  EXPECT_GT(saved("dp", "2"), 100'000);
}

/// Where a batch of images is larger than the activations, the highest moment is not in the step but before it.
TEST(RankMemory, OfLargeBatchesIsThatOfTheStep) {
  for (const std::string prefetch : {"0", "1"}) {
    const auto peaks =
        peaks_of({"model=mlp", "embedding=4", "train.batch=512", "data.prefetch=" + prefetch}, LargePatterns());
    EXPECT_EQ(peaks[0].predicted, peaks[0].measured) << prefetch;
  }
}

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
      if (head == "head.fused_update=true" && more != "parallel=tensor" && more != "train.accumulate=1") continue;
      const auto peaks = peaks_of({"model=none", "embedding=64", "train.batch=23", "head.classes=301",
                                   "train.nesterov=false", "ranks=4", mesh, head, more});
      for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << head << ' ' << more;
    }
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

TEST(RankMemory, OfComparedCallsIsThatOfOthers) {
  for (const std::string strategy : {"ddp", "fsdp", "ps"}) {
    const auto peaks = peaks_of({"parallel=" + strategy, "model=mlp", "train.batch=23", "head.classes=301", "ranks=3"},
                                Patterns(), {.check = true});
    for (const auto& [predicted, measured] : peaks) EXPECT_EQ(predicted, measured) << strategy;
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

TEST(RankFacts, TravelWithTheBytesOfADevice) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    RankFacts own;
    if (group.rank() == 1) own.device = memory::DeviceBytes{3, 7};
    const auto all = gather_facts(own, group);
    EXPECT_FALSE(all[0].device);
    EXPECT_EQ(all[1].device->live, 3);
    EXPECT_EQ(all[1].device->peak, 7);
  });
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

/// Category gradients of rank 0 of one, after backward, and the bytes of all gradients.
std::pair<int64_t, int64_t> gradients_of(const std::vector<std::string>& words) {
  memory::install_meter();
  const Patterns patterns;
  const auto job = job_of(words);
  std::pair<int64_t, int64_t> both;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto loader = training_loader(job, patterns, group);
    auto mesh = make_mesh(job, group);
    const auto task =
        make_task(job, shape_of(job, patterns), even_counts(job, shape_of(job, patterns).classes, 1), mesh);
    const auto sync = job.parallel.strategy->make({task->parameters()}, mesh, job.parallel.strategy_options);
    loader->start(0);
    data::Batch batch;
    loader->next(batch);
    const auto loss = task->loss(batch, std::vector<int64_t>{batch.global_size});
    sync->before_backward(loss);
    loss.backward();
    both.first = memory::account(0).live[static_cast<size_t>(Category::gradients)];
    for (const auto& parameter : task->parameters()) {
      both.second += static_cast<int64_t>(parameter.tensor.grad().nbytes());
    }
  });
  return both;
}

TEST(RankMemory, GradientsOfOneRankAreGradients) {
  for (const std::string model : {"mlp", "resnet_glyph", "resnet18"}) {
    for (const auto& strategy : parallel::strategies()) {
      for (const std::string update : {"worker", "server"}) {
        const auto [counted, made] = gradients_of({"model=" + model, "embedding=24", "train.batch=13",
                                                   "parallel=" + std::string(strategy.name), "ps.update=" + update});
        EXPECT_EQ(counted, made) << model << ' ' << strategy.name << ' ' << update;
        EXPECT_GT(made, 0) << model;
      }
    }
  }
}

/// The largest draw of all steps counts. Batches of one image a class, and blocks of which a larger draw has one more.
TEST(RankMemory, OfSampledClassesIsABound) {
  constexpr int64_t kRow = 24 * 4, kCopies = 4;  // of the classes beyond those of a step: gradient, copies, state
  for (const std::string classes : {"59", "301", "3001"}) {
    for (const Words& more : std::vector<Words>{{"head.sample=0.2"},
                                                {"head.sample=0.5", "head.log_q=true", "head=arcface"},
                                                {"head.sample=0.3", "head.fused_update=true", "head.lazy=exact"},
                                                {"head.sample=0.2", "head.precision=bf16", "ranks=1"},
                                                {"head.sample=0.5", "parallel=zero2", "train.precision=float64"}}) {
      const auto words =
          with({"model=mlp", "embedding=24", "train.batch=23", "head.classes=" + classes, "ranks=3"}, more);
      SCOPED_TRACE(testing::PrintToString(words));
      for (const auto& [predicted, measured] : peaks_of(words)) {
        EXPECT_GE(predicted, measured);
        EXPECT_LE(predicted, measured + std::stoll(classes) * kCopies * 2 * kRow);
      }
    }
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
