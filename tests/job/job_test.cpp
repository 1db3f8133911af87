#include "tandem/job/job.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/job/epoch_hints.h"
#include "tandem/job/sections/naming.h"
#include "tests/job/job_of.h"
#include "tests/support/text_of.h"

namespace tandem::job {
namespace {

using test::text_of;

TEST(EpochHints, ComeOnlyWhereTheyAreWorthALine) {
  const auto hints = [](const Words& words, int64_t images, int64_t per_epoch) {
    return epoch_hints(job_of(words), images, per_epoch).size();
  };
  EXPECT_EQ(hints({"train.epochs=20"}, 750, 5), 1U);  // 110 images
  EXPECT_EQ(hints({}, 750, 5), 2U);                   // and 15 steps
  EXPECT_EQ(hints({"train.steps=15"}, 750, 5), 1U);   // as they are asked for
  EXPECT_EQ(hints({}, 42'856, 334), 0U);              // 104 images: 1 in 400
  EXPECT_EQ(hints({"train.epochs=100", "train.batch=5"}, 5, 1), 0U);
  EXPECT_EQ(hints({"train.epochs=99", "train.batch=5"}, 5, 1), 1U);
}

TEST(Job, HoldsWhatTheSettingsMean) {
  const auto job = job_of({"head=arcface", "head.margin=0.5", "head.sample=0.25", "head.lazy=exact",
                           "train.precision=bf16", "memory.limit=1M", "ranks=3", "resume=somewhere"});
  EXPECT_EQ(job.head.options.scoring.margin.angle, 0.5);
  EXPECT_EQ(job.head.options.sampling->rate, 0.25);
  EXPECT_TRUE(job.head.moves_all_rows);
  EXPECT_EQ(job.training.precision.type, at::kFloat);
  EXPECT_EQ(job.training.precision.products, at::kBFloat16);
  EXPECT_EQ(job.memory.limits, std::vector<int64_t>(3, 1 << 20));
  EXPECT_EQ(job.run.resume, Resume::from_path);
  EXPECT_EQ(job.run.resume_path, "somewhere");
}

TEST(Job, HoldsThePreprocessing) {
  const auto plain = job_of({"data=images:x"}).data;
  EXPECT_EQ(plain.preprocessing, (data::Preprocessing{{.height = 32, .width = 32}, {}}));
  const auto data =
      job_of({"data=market1501:x", "data.size=64", "data.resize=crop", "data.mean=imagenet", "data.std=0.1,0.2,0.3"})
          .data;
  EXPECT_EQ(data.preprocessing.form, (data::ImageForm{.height = 64, .width = 32, .fit = data::Fit::crop}));
  EXPECT_EQ(data.preprocessing.normalization, (data::Normalization{{0.485, 0.456, 0.406}, {0.1, 0.2, 0.3}}));
  EXPECT_EQ(data.augment.normalization, data.preprocessing.normalization);
  const auto ink = job_of({"data.mean=0.25"}).data.preprocessing;
  EXPECT_EQ(ink.form.colours, data::Colours::grey);
  EXPECT_TRUE(ink.form.inverted);
  EXPECT_EQ(ink.normalization.mean, std::vector{0.25});
}

TEST(Job, ANormalizationHasOneForm) {
  const auto text = [](const std::string& word) { return job_of({"data=images:x", word}).settings; };
  EXPECT_TRUE(text("data.mean=0.5,.5,0.50").is_default("data.mean"));
  EXPECT_EQ(text("data.std=0.229,0.224,0.225").get_string("data.std"), "imagenet");
  const auto told = [](const Words& words) { return text_of<SettingsError>([&] { job_of(words); }); };
  for (const auto* wrong : {"data.std=0", "data.std=1,2", "data.std=1,x,2", "data.std=", "data.std=nan"}) {
    EXPECT_TRUE(told({"data=images:x", wrong}).starts_with("data.std is ")) << wrong;
  }
  EXPECT_EQ(told({"data.mean=imagenet"}),
            "data.mean is imagenet with images of one channel, wanted half, mnist, fashion or one number");
}

TEST(Job, HoldsTheOptionsOfDdp) {
  const auto ddp = job_of({"ddp.bucket=64K", "ddp.bucket_view=false", "ddp.unused=find", "ddp.buffers=steps",
                           "ddp.hook=powersgd", "ddp.rank=3"})
                       .parallel.strategy_options.ddp;
  EXPECT_EQ(ddp.bucket_bytes, 64 << 10);
  EXPECT_EQ(ddp.first_bucket_bytes, 64 << 10);
  EXPECT_FALSE(ddp.gradient_as_bucket_view);
  EXPECT_TRUE(ddp.find_unused_parameters && !ddp.static_graph && ddp.broadcast_buffers);
  EXPECT_EQ(ddp.hook_kind().name, "powersgd");
  EXPECT_EQ(ddp.hook_rank, 3);
  EXPECT_TRUE(job_of({"ddp.unused=static"}).parallel.strategy_options.ddp.static_graph);
  const auto by_default = job_of({}).parallel.strategy_options.ddp;
  EXPECT_EQ(by_default.bucket_bytes, parallel::DistributedDataParallelOptions().bucket_bytes);
  EXPECT_EQ(by_default.first_bucket_bytes, parallel::DistributedDataParallelOptions().first_bucket_bytes);
}

TEST(Job, HoldsTheOptionsOfPostLocalSgd) {
  const auto options =
      job_of({"ddp.hook=post-local-sgd", "ddp.local_start=7", "ddp.local_every=3"}).parallel.strategy_options;
  EXPECT_TRUE(options.ddp.hook_kind().goes_apart);
  EXPECT_EQ(options.post_local_sgd.start, 7);
  EXPECT_EQ(options.post_local_sgd.every, 3);
  const auto by_default = job_of({}).parallel.strategy_options.post_local_sgd;
  EXPECT_EQ(by_default.start, parallel::PostLocalSgdOptions().start);
  EXPECT_EQ(by_default.every, parallel::PostLocalSgdOptions().every);
  for (const std::string hook : {"post-local-sgd", "fp16"}) {
    EXPECT_EQ(
        test::text_of<SettingsError>([&] {
          check_training(job_of({"ddp.hook=" + hook, "ranks=2", "train.shards=4"}));
        }),
        "ddp.hook is " + hook + " with train.shards, which sums over shards in their order: leave one of them out");
  }
}

/// What the hook keeps of a step has the scale of its loss, and remains when the step is left out.
TEST(Job, AHookThatKeepsErrorsNeedsStepsOfOneScale) {
  const auto refused = [](const Words& more) {
    return test::text_of<SettingsError>([&] { check_training(job_of(with({"ddp.hook=powersgd", "ranks=2"}, more))); });
  };
  EXPECT_EQ(refused({"train.precision=float16"}),
            "ddp.hook is powersgd with train.precision=float16, whose scale of the loss changes what the hook keeps of "
            "earlier steps: set train.loss_scale to a number, or use train.precision=bf16");
  EXPECT_EQ(refused({"train.skip_nonfinite=1"}),
            "ddp.hook is powersgd with train.skip_nonfinite, whose skipped steps would remain in what the hook keeps: "
            "leave one of them out");
  check_training(job_of({"ddp.hook=powersgd", "ranks=2", "train.precision=float16", "train.loss_scale=1024"}));
  check_training(job_of({"ddp.hook=powersgd", "train.skip_nonfinite=1"}));  // one rank: without effect
}

TEST(Job, Float16HasALossScale) {
  EXPECT_FALSE(job_of({}).training.loss_scale);
  EXPECT_FALSE(job_of({"train.precision=bf16", "train.loss_scale=8"}).training.loss_scale);
  const auto job = job_of({"train.precision=float16", "train.loss_scale_growth=50"});
  EXPECT_EQ(job.training.precision.products, at::kHalf);
  EXPECT_EQ(job.training.loss_scale->scale, 65536);
  EXPECT_TRUE(job.training.loss_scale->is_dynamic && job.training.may_leave_out());
  EXPECT_EQ(job.training.loss_scale->growth_interval, 50);
  EXPECT_EQ(train::LossScaleOptions().growth_interval,
            job_of({"train.precision=float16"}).training.loss_scale->growth_interval);
  const auto constant = job_of({"train.precision=float16", "train.loss_scale=1e3"});
  EXPECT_EQ(constant.training.loss_scale->scale, 1000);
  EXPECT_FALSE(constant.training.loss_scale->is_dynamic || constant.training.may_leave_out());
  for (const std::string wrong : {"0", "-1", "fast", "inf"}) {
    EXPECT_EQ(test::text_of<SettingsError>([&] { job_of({"train.loss_scale=" + wrong}); }),
              "train.loss_scale is '" + wrong + "', wanted auto or a number above 0");
  }
  EXPECT_EQ(
      test::text_of<SettingsError>([] {
        check_training(job_of({"train.precision=float16", "head.fused_update=true"}));
      }),
      "train.precision is float16 with head.fused_update, which moves some classes before all gradients are known "
      "and divided by the scale of the loss: leave one of them out");
}

TEST(Job, AnotherFormLeavesOutWhatItCannotDo) {
  const auto job = job_of({"head.sample=0.25", "head.fused_update=true", "train.nesterov=false"});
  EXPECT_TRUE(job.head.steps_in_backward);
  const auto naive = with_form(job, head_form("naive"));
  EXPECT_EQ(naive.head.form, &head_form("naive"));
  EXPECT_FALSE(naive.head.steps_in_backward || naive.head.options.sampling);
  EXPECT_EQ(with_form(naive, head_form("sharded")).head.options.sampling->rate, 0.25);
}

TEST(Job, AHeadThatIsWholeOnEachRankScoresAllClasses) {
  const auto job = job_of({"head.parallel=replicated", "head.fused_update=true"});
  EXPECT_FALSE(job.head.steps_in_backward);
  EXPECT_EQ(idle_settings(job), Words{"head.fused_update has no effect with head.parallel=replicated"});
  EXPECT_EQ(test::text_of<SettingsError>([] {
              check_training(job_of({"head.parallel=replicated", "head.sample=0.25"}));
            }),
            "head.sample is 0.25 with head.parallel=replicated, which scores all classes, wanted 1: leave one of them "
            "out");
}

TEST(Job, SettingsWithoutEffectAreNamed) {
  const auto job = job_of({"head=softmax", "head.margin=0.7", "head.scale=24", "train.beta1=0.5"});
  EXPECT_EQ(idle_settings(job), (Words{"head.margin has no effect except with head=cosface and head=arcface",
                                       "train.beta1 has no effect with train.optimizer=sgd"}));
  EXPECT_TRUE(is_idle(job, "head.scale"));
  EXPECT_FALSE(is_idle(job, "head.filter"));
  EXPECT_EQ(idle_settings(job_of({"train.schedule=step"})),
            Words{"train.schedule is step without train.milestones: the learning rate never falls"});
  EXPECT_EQ(idle_settings(job_of({"head.precision=bf16", "train.precision=float64"})),
            Words{"head.precision has no effect with train.precision=float64"});
  EXPECT_EQ(idle_settings(job_of({"comm.check=true"})), Words{"comm.check has no effect with one rank"});
  EXPECT_EQ(idle_settings(job_of({"parallel=ps", "ps.mode=async", "head.parallel=replicated"})),
            Words{"ps.mode has no effect with one rank"});
  EXPECT_EQ(idle_settings(job_of({"parallel=zero2", "fsdp.reshard=false"})),
            Words{"fsdp.reshard has no effect except with parallel=fsdp"});
  EXPECT_EQ(idle_settings(job_of({"parallel=dp", "ranks=3", "comm.transport=sockets", "comm.timeout=9"})),
            (Words{"comm.timeout has no effect with replicas of one process, which send nothing",
                   "comm.transport has no effect with replicas of one process, which send nothing"}));
  EXPECT_EQ(idle_settings(job_of({"ddp.hook=fp16"})), Words{"ddp.hook has no effect with one rank"});
  EXPECT_EQ(idle_settings(job_of({"ddp.hook=fp16", "ranks=2", "parallel=tensor"})),
            Words{"ddp.hook has no effect with one rank along data"});
  EXPECT_EQ(idle_settings(job_of({"local_sgd.every=2", "parallel=local-sgd", "ranks=2", "mesh.tensor=2"})),
            Words{"local_sgd.every has no effect with one rank along data"});
  EXPECT_EQ(idle_settings(job_of({"ps.update=server", "parallel=ps", "ranks=2", "mesh.tensor=2"})),
            Words{"ps.update has no effect with one rank along data"});
  EXPECT_EQ(idle_settings(job_of({"ddp.bucket=64K", "ranks=2", "train.shards=4"})),
            Words{"ddp.bucket has no effect with train.shards"});
  EXPECT_EQ(idle_settings(job_of({"ddp.rank=3", "ranks=2"})),
            Words{"ddp.rank has no effect except with ddp.hook=powersgd"});
  EXPECT_EQ(idle_settings(job_of({"ddp.local_every=3", "ranks=2"})),
            Words{"ddp.local_every has no effect except with ddp.hook=post-local-sgd"});
  EXPECT_EQ(idle_settings(job_of({"train.loss_scale=8"})),
            Words{"train.loss_scale has no effect except with train.precision=float16"});
  EXPECT_EQ(idle_settings(job_of({"train.precision=float16", "train.loss_scale=8", "train.loss_scale_growth=3"})),
            Words{"train.loss_scale_growth has no effect except with train.loss_scale=auto"});
  EXPECT_EQ(idle_settings(job_of({"model=mlp", "model.norm=group"})),
            Words{"model.norm has no effect on this model: it has no normalisation"});
  EXPECT_EQ(idle_settings(job_of({"model.norm=abn-elu", "model.activation=gelu-fused"})),
            Words{"model.activation has no effect with this model.norm: its activation is a part of it"});
}

TEST(Job, AnotherStrategyOrCutOfTheBatchResumesTheSameCheckpoints) {
  const auto job = job_of({"parallel=ddp", "train.accumulate=4"});
  EXPECT_EQ(job.parallel.strategy->name, "ddp");
  EXPECT_EQ(job.training.accumulate, 4);
  EXPECT_EQ(identity(job, Patterns()), identity(job_of({}), Patterns()));
}

TEST(Job, RefusesShardsThatDoNotDivideTheRanks) {
  EXPECT_EQ(
      test::text_of<SettingsError>([] {
        job_of({"parallel=fsdp", "ranks=4", "mesh.shard=3"});
      }),
      "mesh.shard is 3 with 4 ranks, wanted a number that divides them: set mesh.shard=0 to divide the parameters "
      "among all ranks");
  EXPECT_EQ(
      test::text_of<SettingsError>([] {
        job_of({"parallel=fsdp", "ranks=8", "mesh.shard=4", "fsdp.reshard=3"});
      }),
      "fsdp.reshard is 3 with 4 ranks among which the parameters are divided, wanted a number that divides them: set "
      "fsdp.reshard=true to divide a block among all of them");
  EXPECT_EQ(test::text_of<SettingsError>([] { job_of({"fsdp.reshard=1"}); }),
            "fsdp.reshard is '1', wanted true, false or a whole number 2..1024");
  const auto reshard = [](const std::string& text) {
    return job_of({"parallel=fsdp", "ranks=4", "fsdp.reshard=" + text}).parallel.strategy_options.fsdp.reshard;
  };
  EXPECT_EQ((std::vector<int>{reshard("true"), reshard("off"), reshard("2")}), (std::vector<int>{0, 1, 2}));
  const auto job = job_of({"parallel=fsdp", "ranks=4", "mesh.shard=2", "fsdp.prefetch=false"});
  EXPECT_EQ(job.parallel.strategy_options.fsdp.shard, 2);
  EXPECT_FALSE(job.parallel.strategy_options.fsdp.prefetch);
}

TEST(Job, RanksOfOneProcessAreReplicasOfOneRank) {
  const auto job = job_of({"parallel=dp", "ranks=3", "train.batch=2"});
  EXPECT_EQ(job.parallel.ranks, 1);
  EXPECT_EQ(job.parallel.parts(), 3);
  EXPECT_EQ(job.parallel.strategy_options.dp.replicas, 3);
  EXPECT_EQ(job.settings.get_int("ranks"), 3) << "saved with the run";
  check_training(job);
  EXPECT_EQ(test::text_of<SettingsError>([] {
              check_training(job_of({"parallel=dp", "ranks=3", "model=resnet18", "model.norm=sync"}));
            }),
            "model.norm is sync with parallel=dp, whose replicas share no statistics: use model.norm=batch, or "
            "parallel=ddp");
}

TEST(Job, TheDeviceIsNoPartOfACheckpoint) {
  const auto entries = identity(job_of({}), Patterns());
  EXPECT_EQ(job_of({}).parallel.device, at::kCPU);
  EXPECT_TRUE(std::ranges::none_of(entries, [](const auto& entry) { return entry.first == "device"; }));
}

TEST(Job, RefusesADeviceThatCannotTrain) {
  if (at::hasCUDA()) GTEST_SKIP() << "a GPU is here";
  EXPECT_EQ(test::text_of<SettingsError>([] { job_of({"device=cuda"}); }),
            "device is cuda, and this build has no kernels for GPUs, wanted cpu: leave device out, or use a build with "
            "TANDEM_CUDA=ON");
}

TEST(Job, SavedSettingsMeanTheSame) {
  for (const std::string schedule : {"onecycle", "cosine", "step", "constant"}) {
    const auto job = job_of({"train.schedule=" + schedule});
    settings::Settings saved(schema());
    saved.load_toml(job.settings.to_toml(), "settings.toml");
    EXPECT_EQ(job.schedule.options.warmup, schedule == "onecycle" ? 0.3 : 0.0);
    EXPECT_EQ(read_job(saved).schedule.options.warmup, job.schedule.options.warmup) << schedule;
  }
}

TEST(Job, EverySettingOfAnIdentityOrARuleExists) {
  for (const auto* section : sections()) {
    for (const auto key : section->identity) EXPECT_NE(settings::find_setting(schema(), key), nullptr) << key;
    for (const auto& rule : section->idle) {
      for (const auto key : rule.keys) EXPECT_NE(settings::find_setting(schema(), key), nullptr) << key;
    }
  }
}

TEST(Job, WhatATrainingCannotDoIsTold) {
  const auto fault = [](const Words& words) {
    return test::text_of<SettingsError>([&] { check_training(job_of(words)); });
  };
  EXPECT_EQ(fault({"train.clip=2", "head.fused_update=true"}),
            "train.clip is 2 with head.fused_update, whose steps are done before the norm of all gradients is known: "
            "leave one of them out");
  EXPECT_EQ(fault({"train.skip_nonfinite=2", "head.fused_update=true"}),
            "train.skip_nonfinite is 2 with head.fused_update, which has moved some classes before the fault is seen: "
            "leave one of them out");
  EXPECT_EQ(fault({"train.accumulate=2", "head.fused_update=true"}),
            "train.accumulate is 2 with head.fused_update, whose steps are done before all micro-batches are known: "
            "leave one of them out");
  EXPECT_EQ(fault({"train.accumulate=2", "head.sample=0.5"}),
            "train.accumulate is 2 with head.sample, whose classes would differ from one micro-batch to the next: "
            "leave one of them out");
  EXPECT_EQ(fault({"train.accumulate=4", "train.batch=10", "ranks=3"}),
            "train.accumulate is 4, wanted at most 3, the images of a rank in train.batch");
  EXPECT_EQ(fault({"train.accumulate=3", "train.batch=10", "ranks=3"}), "nothing thrown");
  EXPECT_EQ(fault({"train.batch=2", "ranks=3"}), "train.batch is 2, wanted at least 3, one image a rank");
  EXPECT_EQ(fault({"data=market1501:nowhere", "data.size=15"}),
            "data.size is 15 with market1501, wanted 16 or more: the width is half of it");
  EXPECT_EQ(fault({"memory.limit=1G,2G", "ranks=3"}), "memory.limit has 2 sizes, wanted 1 or 3, one a rank");
  EXPECT_EQ(fault({"memory.limit=1G,2G"}), "memory.limit has 2 sizes, wanted 1");
  EXPECT_EQ(fault({"memory.limit=9000P"}), "memory.limit is '9000P', wanted bytes as 512, 64M or 2G, below 8192P");
}

TEST(Job, OtherRanksHaveNoListOfLimits) {
  auto list = job_of({"memory.limit=1M,2M", "ranks=2"}).settings, one = job_of({"memory.limit=1M"}).settings;
  set_ranks(list, 3);
  set_ranks(one, 3);
  EXPECT_EQ(read_job(list).memory.limits, std::vector<int64_t>());
  EXPECT_EQ(read_job(one).memory.limits, std::vector<int64_t>(3, 1 << 20));
}

TEST(Job, AWrongHeadIsToldByItsSettings) {
  const auto fault = [](const Words& words) { return test::text_of<SettingsError>([&] { job_of(words); }); };
  EXPECT_EQ(fault({"head=combined", "head.margins=0,0,0"}), "head.margins[0] is 0, wanted a positive number");
  EXPECT_EQ(fault({"head=combined", "head.margins=2,0,0", "head.beyond=linear"}),
            "head.beyond is linear with head.margins[0] 2, wanted 1");
  EXPECT_EQ(fault({"head=sphereface", "head.beyond=linear"}), "head.beyond is linear with head.factor 4, wanted 1");
  EXPECT_EQ(fault({"head=softmax", "head.filter=0.5"}),
            "head.filter is 0.5 with head=softmax, which has no cosines to compare, wanted 1: leave head.filter out");
}

TEST(Naming, OptionsOfALibraryAreCalledAsTheSettingsAre) {
  const auto named = [](const std::string& text) { return with_setting_names(text, {"train", "data"}); };
  EXPECT_EQ(named("hold_out is 1, wanted 2 or more"), "data.hold_out is 1, wanted 2 or more");
  EXPECT_EQ(named("batch is 3, wanted at most the number of images, 2: lower batch"),
            "train.batch is 3, wanted at most the number of images, 2: lower train.batch");
  EXPECT_EQ(named("add images, or set hold_out=0"), "add images, or set data.hold_out=0");
  EXPECT_EQ(named("test_fonts[0] is 'train_fonts', which is no file"),
            "data.test_fonts[0] is 'train_fonts', which is no file");
  EXPECT_EQ(named("nesterov is true with momentum 0"), "train.nesterov is true with train.momentum 0");
  EXPECT_EQ(named("none of the 60 classes in this batch"), "none of the 60 classes in this batch");
  EXPECT_EQ(named("lower lr or set clip"), "lower train.lr or set train.clip");
  EXPECT_EQ(named("use it, set find_unused_parameters, or"), "use it, set ddp.unused=find, or");
}

/// Earlier versions wrote settings without effect with whatever value they had.
TEST(Identity, OfASettingWithoutEffectIsTheDefaultAndNotShared) {
  const Patterns patterns;
  const auto job = job_of({"model=mlp", "head=softmax", "head.margin=0.7"});
  const auto own = identity(job, patterns), shared = shared_identity(job, own);
  const auto margin = std::ranges::find(own, "head.margin", &storage::Identity::value_type::first);
  ASSERT_NE(margin, own.end());
  EXPECT_EQ(margin->second, "0.2");
  EXPECT_EQ(std::ranges::find(shared, "head.margin", &storage::Identity::value_type::first), shared.end());
  EXPECT_EQ(own.back(), (std::pair<std::string, std::string>("images", "100")));
  for (const auto& [key, value] : weights_identity(job, own)) {
    EXPECT_TRUE(!key.starts_with("train.") && key != "seed" && key != "images") << key;
  }
}

}  // namespace
}  // namespace tandem::job
