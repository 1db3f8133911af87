#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <regex>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/job/pipeline_cut.h"
#include "tandem/train/weights_hash.h"
#include "tests/job/step_peaks.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// Jobs whose blocks are divided over the stages of a pipeline.
namespace tandem::job {
namespace {

constexpr int64_t kSteps = 4;

const Words kJob = {
    "train.precision=float64", "train.batch=23", "train.lr=0.05", "train.clip=1", "embedding=16", "threads=1"};

void expect_equal(const WholeRun& several, const WholeRun& one, const std::string& what) {
  ASSERT_EQ(several.losses.size(), one.losses.size()) << what;
  for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(several.losses[i], one.losses[i], 1e-12) << what << i;
  EXPECT_EQ(several.top1, one.top1) << what;
  EXPECT_NEAR(several.test_loss, one.test_loss, 1e-11) << what;
}

std::string number(int value) { return std::to_string(value); }

TEST(Pipelined, EveryScheduleTrainsAsOneDevice) {
  for (const Words& model : {Words{"model=resnet_glyph", "model.norm=none"}, Words{"model=resnet_glyph"}}) {
    const auto job = with(kJob, model);
    const auto one = whole_run(with(job, {"train.accumulate=4"}), kSteps);
    for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"}) {
      const bool has_chunks = schedule == "interleaved" || schedule[0] == 'v' || schedule == "zb-v";
      for (int ranks = 2; ranks <= (has_chunks ? 2 : 4); ++ranks) {
        const Words plan = {"ranks=" + number(ranks), "parallel=pipeline", "pipeline.schedule=" + schedule,
                            "train.accumulate=4"};
        expect_equal(whole_run(with(job, plan), kSteps), one, schedule + " on " + number(ranks) + " ");
      }
    }
  }
}

TEST(Pipelined, ManyPlansTrainAsOneDevice) {
  const Words network = {"model=resnet_glyph", "model.norm=none", "train.accumulate=3"};
  const Words with_statistics = {"model=resnet_glyph", "train.accumulate=3"};
  const Words cells = {"model=darts-v2", "model.cells=6", "model.channels=4", "model.norm=none", "train.accumulate=3"};
  const Words vit = {"model=vit_tiny", "model.patch=8", "model.heads=6", "model.norm=none", "train.accumulate=3"};
  const Words with_statistics_of_images = {"model=resnet_glyph", "model.norm=group", "train.accumulate=3"};
  const Words frozen = {"model=resnet_glyph", "model.norm=none", "train.accumulate=3", "model.freeze=conv1,layer1"};
  const Words resnet18 = {"model=resnet18", "model.norm=none", "train.accumulate=3"};
  const Words filtered = with(network, {"head=arcface", "head.filter=0.1", "head.smoothing=0.1"});
  const std::vector<std::pair<Words, Words>> plans = {
      {network, {"ranks=4", "mesh.pipeline=2"}},
      {network, {"ranks=4", "mesh.pipeline=2", "parallel=zero1", "pipeline.schedule=zb-h1"}},
      {network, {"ranks=6", "mesh.pipeline=3", "parallel=zero1"}},
      {network, {"ranks=4", "mesh.pipeline=2", "parallel=zero2"}},
      {frozen, {"ranks=3", "parallel=pipeline"}},
      {frozen, {"ranks=2", "parallel=pipeline", "pipeline.schedule=zb-v"}},
      {with_statistics_of_images, {"ranks=6", "mesh.pipeline=2", "parallel=zero2", "pipeline.schedule=gpipe"}},
      {network, {"ranks=4", "mesh.pipeline=2", "pipeline.schedule=interleaved", "ddp.bucket=4K", "train.accumulate=4"}},
      {network, {"ranks=4", "mesh.pipeline=2", "mesh.tensor=2", "pipeline.schedule=zb-h1"}},
      {network, {"ranks=8", "mesh.pipeline=2", "mesh.tensor=2", "pipeline.schedule=v-half"}},
      {network, {"ranks=3", "parallel=pipeline", "head.over=pipeline"}},
      {filtered, {"ranks=2", "parallel=pipeline", "head.over=all", "pipeline.schedule=v-half"}},
      {filtered, {"ranks=6", "mesh.pipeline=2", "head.over=all", "pipeline.schedule=gpipe"}},
      {network, {"ranks=4", "mesh.pipeline=2", "parallel=fsdp", "pipeline.schedule=zb-v", "head.over=all"}},
      {network, {"ranks=6", "mesh.pipeline=3", "parallel=zero2", "pipeline.schedule=zb-h1"}},
      {network, {"ranks=4", "mesh.pipeline=2", "parallel=fsdp", "recompute=sqrt", "pipeline.schedule=v-min"}},
      {frozen, {"ranks=4", "mesh.pipeline=2", "parallel=fsdp", "pipeline.schedule=zb-h1"}},
      {network, {"ranks=3", "parallel=pipeline", "pipeline.cut=layer1.0,head"}},
      {network, {"ranks=3", "parallel=pipeline", "pipeline.cut=layer1.0/1,layer3.0/2", "pipeline.schedule=zb-h1"}},
      {with_statistics, {"ranks=8", "parallel=pipeline", "pipeline.schedule=zb-h2"}},
      {network,
       {"ranks=2", "parallel=pipeline", "pipeline.schedule=zb-v", "pipeline.cut=layer1.0/1,layer2.0/1,layer2.0/2"}},
      {network, {"ranks=4", "mesh.pipeline=2", "parallel=zero1", "pipeline.cut=layer2.0/1"}},
      {network, {"ranks=3", "parallel=pipeline", "pipeline.schedule=gpipe", "recompute=all"}},
      {with_statistics, {"ranks=2", "parallel=pipeline", "pipeline.schedule=gpipe", "recompute=all"}},
      {with_statistics, {"ranks=2", "parallel=pipeline", "pipeline.schedule=zb-v", "recompute=sqrt"}},
      {with_statistics, {"ranks=1", "recompute=all"}},
      {cells, {"ranks=3", "parallel=pipeline", "pipeline.schedule=v-min"}},
      {cells, {"ranks=5", "parallel=pipeline"}},
      {resnet18, {"ranks=8", "parallel=pipeline", "pipeline.schedule=zb-h1"}},
      {resnet18, {"ranks=5", "parallel=pipeline", "pipeline.schedule=v-half"}},
      {vit, {"ranks=7", "parallel=pipeline"}},
      {vit, {"ranks=3", "parallel=pipeline", "pipeline.schedule=v-half"}}};
  std::map<Words, WholeRun> alone;
  for (const auto& [model, plan] : plans) {
    const auto job = with(kJob, model);
    std::string what;
    for (const auto& word : with(model, plan)) what += word + " ";
    const auto [one, is_new] = alone.try_emplace(model);
    if (is_new) one->second = whole_run(job, kSteps);
    expect_equal(whole_run(with(job, plan), kSteps), one->second, what);
  }
}

/// The messages that are under way are in nobody's books.
TEST(Pipelined, MemoryIsPredictedToTheByte) {
  const std::vector<std::pair<Words, Words>> plans = {
      {{"model=resnet_glyph", "ranks=2"}, {"zb-h2", "zb-v", "v-min", "interleaved"}},
      {{"model=resnet_glyph", "ranks=2", "recompute=sqrt"}, {"zb-v", "1f1b"}},
      {{"model=resnet_glyph", "ranks=6"}, {"1f1b", "zb-h1"}},
      {{"model=resnet18", "ranks=4"}, {"gpipe", "1f1b", "zb-h1", "v-half"}},
      {{"model=resnet18", "ranks=4", "recompute=all"}, {"gpipe", "v-half"}},
      {{"model=vit_tiny", "model.patch=8", "ranks=4"}, {"gpipe", "1f1b", "zb-h1", "v-half"}},
      {{"model=vit_tiny", "model.patch=8", "ranks=4", "recompute=all"}, {"gpipe"}},
      {{"model=resnet_glyph", "ranks=4", "mesh.pipeline=2", "parallel=zero1"}, {"1f1b", "zb-h1"}},
      {{"model=resnet_glyph", "ranks=4", "mesh.pipeline=2", "parallel=zero2"}, {"1f1b", "zb-h1", "v-half"}},
      {{"model=resnet18", "ranks=4", "mesh.pipeline=2", "parallel=fsdp"}, {"gpipe", "interleaved", "zb-v"}},
      {{"model=vit_tiny", "model.patch=8", "ranks=4", "mesh.pipeline=2", "parallel=fsdp"}, {"1f1b", "zb-h1"}},
      {{"model=resnet_glyph", "ranks=3", "head.over=pipeline"}, {"gpipe", "1f1b", "zb-h1"}},
      {{"model=resnet_glyph", "ranks=2", "head.over=all"}, {"v-half", "zb-v"}},
      {{"model=resnet_glyph", "ranks=4", "mesh.pipeline=2", "parallel=ddp", "head.over=all"}, {"1f1b"}},
      {{"model=resnet_glyph", "ranks=8", "mesh.pipeline=2", "mesh.tensor=2", "parallel=ddp", "head.over=all"},
       {"zb-h1"}},
      {{"model=mlp", "ranks=3"}, {"gpipe"}}};
  for (const auto& [model, schedules] : plans) {
    for (const auto& schedule : schedules) {
      const auto words =
          with({"parallel=pipeline"}, with(model, {"pipeline.schedule=" + schedule, "train.accumulate=8",
                                                   "train.batch=37", "head.classes=301", "embedding=24"}));
      const auto peaks = peaks_of(words);
      const auto* how = model.back().starts_with("recompute") ? " recomputed " : " ";
      for (size_t rank = 0; rank < peaks.size(); ++rank) {
        // Of targets that are another rank's classes nothing is made.
        const int64_t of_targets = std::ranges::count(model, "head.over=all") > 0 ? 1024 : 0;
        EXPECT_GE(peaks[rank].predicted, peaks[rank].measured) << model[0] << ' ' << schedule << how << rank;
        EXPECT_LE(peaks[rank].predicted, peaks[rank].measured + of_targets)
            << model[0] << ' ' << schedule << how << rank;
      }
    }
  }
}

/// Names are those of the whole model, wherever a block is.
TEST(Megatron7452, ACheckpointOfStagesGoesOnUnderAnyPlan) {
  const auto job = with(kJob, {"model=resnet_glyph", "train.accumulate=2", "train.optimizer=adamw"});
  const std::vector<Words> plans = {{"ranks=4", "parallel=pipeline"},
                                    {"ranks=2", "parallel=pipeline", "pipeline.schedule=zb-v"},
                                    {"ranks=1"},
                                    {"ranks=2", "parallel=tensor"},
                                    {"ranks=3", "parallel=fsdp"},
                                    {"ranks=4", "mesh.pipeline=2", "parallel=zero1"},
                                    {"ranks=4", "mesh.pipeline=2", "parallel=fsdp", "head.over=all"},
                                    {"ranks=3", "parallel=pipeline", "head.over=pipeline"},
                                    {"ranks=4", "mesh.pipeline=2", "pipeline.schedule=zb-h1"}};
  test::TemporaryFolder store;
  const auto first = whole_run(with(job, plans[0]), 2, store.path());
  for (const auto& plan : plans) {
    const auto again = whole_run(with(job, plan), 2, store.path());
    EXPECT_EQ(again.hash, first.hash) << plan[1 % plan.size()];
    EXPECT_EQ(again.top1, first.top1);
  }
}

/// A test's batches pass as a whole.
TEST(Pipelined, TestsHaveTheBitsOfOneDevice) {
  const Words job = {"model=resnet_glyph", "train.accumulate=4", "train.batch=23", "threads=1", "eval.batch=7"};
  for (const auto* schedule : {"1f1b", "zb-v", "interleaved"}) {
    test::TemporaryFolder store;
    const Words plan = {"ranks=4", "parallel=pipeline", std::string("pipeline.schedule=") + schedule};
    const auto ranks = std::string(schedule) == "1f1b" ? "ranks=4" : "ranks=2";
    const auto several = whole_run(with(job, with(plan, {ranks})), 2, store.path());
    const auto alone = scores_of(with(job, {"ranks=1"}), store.path());
    EXPECT_EQ(several.top1, alone.value("top1")) << schedule;
    EXPECT_EQ(several.test_loss, alone.value("loss")) << schedule;
  }
}

/// A rank that fails in a stage.
TEST(Pipelined, ARankThatFailsReleasesTheOthers) {
  const auto job = job_of(with(kJob, {"model=resnet_glyph", "ranks=3", "parallel=pipeline", "train.accumulate=3"}));
  const Patterns patterns;
  const auto shape = shape_of(job, patterns);
  const auto start = std::chrono::steady_clock::now();
  try {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      const auto parts = assemble(job, shape, group);
      if (group.rank() == 1) {
        parts.task->replicated_chain()->blocks.front().forward = [](const memory::Flow& x) -> memory::Flow {
          throw DataError("image 'a.png' is not an image");
        };
      }
      const auto loader = training_loader(job, patterns, group);
      loader->start(0);
      data::Batch batch;
      ASSERT_TRUE(loader->next(batch));
      parts.step->run(batch, 0, 0.01);
    });
    FAIL() << "nothing thrown";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 of 3"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

/// Without the rank that was the first to say so.
std::string refused(const Words& words) {
  const auto text = test::text_of<SettingsError>([&] {
    const auto job = job_of(words);
    check_training(job);
    comm::run_ranks(job.parallel.ranks, [&](comm::ProcessGroup& group) {
      assemble(job, {.classes = 7, .image = {1, 16, 16}}, group);
    });
  });
  return std::regex_replace(text, std::regex(" \\(rank \\d+ of \\d+\\)"), "");
}

TEST(Pipelined, WhatCannotBeCutIsRefused) {
  EXPECT_EQ(refused({"model=mlp", "ranks=4", "parallel=pipeline"}),
            "mesh.pipeline is 4, which makes 4 stages, wanted at most the 3 blocks of model mlp: use "
            "fewer ranks along pipeline, or a larger model");
  EXPECT_EQ(refused({"model=resnet_glyph", "ranks=2", "parallel=pipeline", "model.freeze=layr2"}),
            "model.freeze has 'layr2', wanted the beginning of a parameter's name: did you mean layer2?");
  EXPECT_EQ(refused({"model=mlp", "ranks=2", "parallel=pipeline", "pipeline.cut=fc3"}),
            "pipeline.cut names 'fc3', wanted blocks of the model in their order, but not the first: fc1, fc2, "
            "embedding");
  EXPECT_EQ(refused({"model=resnet_glyph", "ranks=18", "parallel=pipeline"}),
            "mesh.pipeline is 18, which makes 18 stages, wanted at most the 17 parts of the 5 blocks of model "
            "resnet_glyph: use fewer ranks along pipeline, or a larger model");
  EXPECT_EQ(refused({"model=resnet_glyph", "ranks=2", "parallel=pipeline", "pipeline.cut=layer2.0/9"}),
            "pipeline.cut names 'layer2.0/9', wanted blocks of the model in their order, but not the first: stem, "
            "layer1.0, layer2.0, layer3.0, head: layer2.0 is cut inside by layer2.0/1 to layer2.0/4");
  EXPECT_EQ(refused({"model=resnet_glyph", "ranks=3", "parallel=pipeline", "pipeline.cut=layer3.0,layer2.0"}),
            "pipeline.cut names 'layer2.0' out of order, wanted blocks of the model in their order, but not the first: "
            "stem, layer1.0, layer2.0, layer3.0, head");
  EXPECT_EQ(
      refused({"model=mlp", "ranks=2", "parallel=pipeline", "pipeline.schedule=zb-v"}),
      "mesh.pipeline is 2 with pipeline.schedule=zb-v, which makes 4 stages, wanted at most the 3 blocks of model "
      "mlp: use fewer ranks along pipeline, a schedule with fewer stages a rank, or a larger model");
  EXPECT_EQ(refused({"model=mlp", "ranks=2", "parallel=pipeline", "pipeline.cut=fc2,embedding"}),
            "pipeline.cut names 2 blocks, wanted 1, one for each stage but the first: pipeline.cut= cuts by work");
  EXPECT_EQ(refused({"ranks=2", "parallel=pipeline", "pipeline.schedule=interleaved", "train.accumulate=3"}),
            "train.accumulate is 3 with pipeline.schedule=interleaved and 2 ranks along pipeline, wanted a multiple of "
            "them: use another schedule, or as many micro-batches");
  EXPECT_EQ(refused({"ranks=4", "mesh.pipeline=3"}),
            "mesh.pipeline is 3 with 4 ranks, wanted a number that divides them: give a multiple of 3 ranks, or set "
            "mesh.pipeline=1");
  EXPECT_EQ(refused({"ranks=2", "parallel=pipeline", "head.over=pipeline", "head.parallel=naive"}),
            "head.over is pipeline with head.parallel=naive, whose classes are at the last stage of a pipeline alone, "
            "wanted axes without pipeline: use head.over=last, or head.parallel=sharded");
  EXPECT_EQ(refused({"ranks=2", "parallel=pipeline", "head.over=pipeline,last"}),
            "head.over is pipeline,last, wanted all, last, or axes, each once: use head.over=all");
  EXPECT_EQ(refused({"ranks=2", "parallel=pipeline", "pipeline.schedule=gpip"}).substr(0, 40),
            "pipeline.schedule is 'gpip', wanted gpip");
}

/// Where it lies is the machine's to say; that all ranks cut there is not.
TEST(Pipelined, AllRanksCutWhereTheFirstMeasures) {
  auto job = job_of({"model=resnet_glyph", "ranks=3", "parallel=pipeline", "pipeline.cut=measured"});
  const DataShape shape{.classes = 7, .image = {1, 16, 16}};
  EXPECT_TRUE(job.pipeline.cut.empty());
  std::vector<std::vector<std::string>> cuts(3);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    auto own = job;
    settle_cut(own, shape, group);
    cuts[group.rank()] = own.pipeline.cut;
  });
  EXPECT_EQ(cuts[0].size(), 2);
  EXPECT_EQ(cuts, std::vector<std::vector<std::string>>(3, cuts[0]));
  job.pipeline.cut = cuts[0];
  job.pipeline.measures_cut = false;
  EXPECT_EQ(cut_of(job, shape), cuts[0]);
  settle_cut(job, shape);
  EXPECT_EQ(job.pipeline.cut, cuts[0]) << "it is settled";
}

TEST(Pipelined, AProgramFileIsProved) {
  test::TemporaryFolder folder;
  const auto path = (folder.path() / "mine.csv").string();
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  const Words job = {"model=mlp", "ranks=2", "parallel=pipeline", "pipeline.schedule=" + path, "train.accumulate=2"};
  write("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(refused(job), "nothing thrown");
  EXPECT_EQ(refused(with(job, {"train.accumulate=3"})),
            "pipeline.schedule '" + path + "' is for 2 micro-batches, wanted 3: set train.accumulate=2");
  EXPECT_EQ(refused(with(job, {"ranks=3"})),
            "pipeline.schedule '" + path + "' is for 2 ranks, wanted 3, those along pipeline");
  write("0F0,0F1\n1F0,1F1\n");
  EXPECT_EQ(refused(job), "pipeline.schedule '" + path + "' has no backward, wanted a step of training");
  write("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(refused(with(job, {"head.over=all"})),
            "pipeline.schedule '" + path +
                "' has no scores with head.over=all: add S and T of each rank and "
                "micro-batch, or use head.over=last");
  write("0F0,0F1,0S0,0S1,0B0,0B1,0T0,0T1\n1F0,1S0,1B0,1F1,1T0,1S1,1B1,1T1\n");
  EXPECT_EQ(refused(with(job, {"head.over=all"})), "nothing thrown");
  EXPECT_EQ(refused(job), "pipeline.schedule '" + path +
                              "' has scores of a divided classifier with head.over=last: use head.over=all, or leave "
                              "S and T out");
  write("0F0,0F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  EXPECT_EQ(refused(job),
            path + " line 2: 1RECV_F0 is met by no send: add 0SEND_F0 to " + path + " line 1, or leave it out");
}

/// Of a step on a batch of which some rows are left out, and of the weights after it.
struct OneStep {
  double loss = 0;
  std::string hash;
};

OneStep step_of(const Words& words) {
  const auto job = job_of(with(kJob, words));
  OneStep result;
  comm::run_ranks(job.parallel.ranks,
                  [&](comm::ProcessGroup& group) {
                    const auto parts = assemble(job, {.classes = 7, .image = {1, 16, 16}}, group);
                    data::Batch batch;
                    batch.images = at::sin(at::arange(11 * 256, at::kFloat)).view({11, 1, 16, 16});
                    batch.labels = at::arange(11) % 7;
                    for (const int64_t row : {0, 3, 4, 9}) batch.labels[row] = -1;
                    batch.global_size = 11;
                    const auto loss = parts.step->run(batch, 0, 0.1)->loss.value();
                    const auto hash = train::weights_hash(parts.step->weights(), group);
                    if (group.rank() == 0) result = {loss, hash};
                  },
                  {.threads = 1});
  return result;
}

/// Rows that a target leaves out count in a pipeline as on one device.
TEST(Torchtitan2972, GradientsDoNotGrowByTheRowsThatCount) {
  const Words job = {"model=resnet_glyph", "model.norm=none", "train.accumulate=4", "train.batch=11", "train.clip=0"};
  const auto one = step_of(job);
  for (const auto* schedule : {"gpipe", "1f1b"}) {
    const auto several =
        step_of(with(job, {"ranks=3", "parallel=pipeline", std::string("pipeline.schedule=") + schedule}));
    EXPECT_NEAR(several.loss, one.loss, 1e-13);
    EXPECT_EQ(several.hash, one.hash) << schedule;
  }
}

}  // namespace
}  // namespace tandem::job
