#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// train.shards: the same bits for every number of ranks.
namespace tandem::job {
namespace {

WholeRun run_on(int ranks, const Words& words, int64_t steps, const std::filesystem::path& store = {}) {
  return whole_run(with({"embedding=16", "train.lr=0.05", "ranks=" + std::to_string(ranks)}, words), steps, store);
}

void expect_same(const WholeRun& one, const WholeRun& other) {
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(one.hash, other.hash);
  EXPECT_EQ(one.state, other.state);
}

TEST(Shards, TheNumberOfRanksChangesNoBit) {
  // 21 images in 4 or 6 shards, 10 classes: neither divides.
  for (const auto& words :
       std::vector<Words>{{"model=mlp", "train.shards=4"},
                          {"model=resnet_glyph", "train.shards=4", "train.clip=0.5"},
                          {"model=mlp", "train.shards=6", "head=softmax", "head.smoothing=0.1"},
                          {"model=resnet_glyph", "train.shards=4", "parallel=zero1"},
                          {"model=mlp", "train.shards=6", "parallel=zero2"},
                          {"model=mlp", "train.shards=4", "train.precision=float16"},
                          {"model=resnet_glyph", "train.shards=4", "parallel=fsdp"},
                          {"model=resnet_glyph", "train.shards=4", "parallel=fsdp", "train.precision=bf16"},
                          {"model=mlp", "train.shards=4", "train.optimizer=adamw", "model.dropout=0.3", "embedding=15",
                           "train.precision=bf16"}}) {
    SCOPED_TRACE(testing::PrintToString(words));
    auto all = words;
    all.push_back("train.batch=21");
    const auto one = run_on(1, all, 5);
    for (const int ranks : {2, 3, 4}) {
      if (job_of(all).training.shards % ranks == 0) expect_same(one, run_on(ranks, all, 5));
    }
  }
}

/// at::batch_norm() saves running statistics, which go back to those of the step's begin before backward.
TEST(Shards, NormsThatCannotBeFusedTrain) {
  const Words words = {"model=resnet_glyph", "train.shards=6", "train.batch=21", "embedding=23"};
  const auto one = run_on(1, words, 4);
  EXPECT_EQ(one.losses.size(), 4U);
  for (const int ranks : {2, 3}) expect_same(one, run_on(ranks, words, 4));
}

/// The norm is that of all numbers, however the ranks divide them.
TEST(Shards, ClippingIsTheSameUnderEachStrategy) {
  for (const std::string model : {"mlp", "resnet_glyph"}) {
    Words words = {"model=" + model, "train.batch=21", "train.shards=4", "train.clip=0.5"};
    const auto unclipped = run_on(1, {words[0], words[1], words[2]}, 4);
    const auto one = run_on(1, words, 4);
    EXPECT_NE(one.hash, unclipped.hash);
    words.emplace_back();
    for (const std::string strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      words.back() = "parallel=" + strategy;
      for (const int ranks : {2, 4}) {
        SCOPED_TRACE(model + ' ' + strategy + ' ' + std::to_string(ranks));
        const auto other = run_on(ranks, words, 4);
        EXPECT_EQ(one.losses, other.losses);
        EXPECT_EQ(one.hash, other.hash);
      }
    }
  }
}

TEST(Shards, AnotherNumberOfRanksMayResume) {
  const Words words = {"model=resnet_glyph", "train.batch=20", "train.shards=4"};
  const auto whole = run_on(1, words, 6);
  const test::TemporaryFolder folder;
  run_on(4, words, 2, folder.path());
  run_on(1, words, 4, folder.path());
  const auto last = run_on(2, words, 6, folder.path());
  EXPECT_EQ(last.hash, whole.hash);
  EXPECT_EQ(last.state, whole.state);
  EXPECT_EQ(last.losses, std::vector<double>(whole.losses.end() - 2, whole.losses.end()));
}

/// Shards are micro-batches of one rank without batch statistics.
TEST(Shards, AreTheBatchInAnotherOrderOfSums) {
  const Words words = {"model=mlp", "model.norm=none", "train.batch=21", "train.precision=float64", "train.clip=0.7"};
  auto cut = words;
  cut.push_back("train.shards=6");
  const auto plain = run_on(1, words, 6), sharded = run_on(3, cut, 6);
  ASSERT_EQ(plain.losses.size(), sharded.losses.size());
  for (size_t i = 0; i < plain.losses.size(); ++i) EXPECT_NEAR(plain.losses[i], sharded.losses[i], 1e-12) << i;
  EXPECT_NE(plain.hash, sharded.hash);
}

/// The threads of a rank change the order of sums: they must not follow from cores and ranks.
TEST(Shards, FixTheThreadsOfARankAndRecordThem) {
  const Patterns patterns;
  const auto recorded = [&](const Words& words) -> std::string {
    const auto job = job_of(words);
    for (const auto& [key, value] : shared_identity(job, identity(job, patterns))) {
      if (key == "threads") return value;
    }
    return "none";
  };
  for (const std::string ranks : {"ranks=1", "ranks=2", "ranks=4"}) {
    const auto job = job_of({"train.shards=4", ranks});
    EXPECT_EQ(job.parallel.threads, 1);
    EXPECT_EQ(job.settings.get_int("threads"), 1);
    EXPECT_TRUE(job.training.fixes_threads);
    EXPECT_EQ(recorded({"train.shards=4", ranks}), "1");
  }
  EXPECT_EQ(recorded({"train.shards=4", "threads=0"}), "1");
  EXPECT_EQ(recorded({"train.shards=4", "threads=3"}), "3");
  EXPECT_FALSE(job_of({"train.shards=4", "threads=3"}).training.fixes_threads);
  EXPECT_EQ(recorded({"threads=3"}), "none");
  EXPECT_EQ(job_of({}).parallel.threads, 0);
  const auto job = job_of({"train.shards=4", "threads=3"});
  for (const auto& [key, value] : weights_identity(job, identity(job, patterns))) {
    EXPECT_NE(key, "threads") << "eval may have other threads";
  }
}

std::string refused(const Words& words) {
  return test::text_of<SettingsError>([&] { check_training(job_of(words)); });
}

TEST(Shards, WhatCannotBeSummedInOrderIsRefused) {
  EXPECT_EQ(refused({"train.shards=4", "ranks=3"}),
            "train.shards is 4 with 3 ranks, wanted a multiple of them: give each rank as many shards");
  EXPECT_EQ(refused({"train.shards=8", "train.batch=7"}),
            "train.shards is 8, wanted at most the 7 images of train.batch");
  EXPECT_EQ(refused({"train.shards=4", "train.accumulate=2"}),
            "train.shards is 4 with train.accumulate, and each shard is a micro-batch already: leave train.accumulate "
            "out");
  EXPECT_EQ(refused({"train.shards=4", "model.norm=sync"}),
            "train.shards is 4 with model.norm=sync, whose statistics are of all ranks: use a norm of one rank");
  EXPECT_EQ(refused({"train.shards=4", "head.sample=0.5"}),
            "train.shards is 4 with head.sample, which leaves classes of a shard out: leave one of them out");
  EXPECT_EQ(refused({"train.shards=4", "head.fused_update=true"}),
            "train.shards is 4 with head.fused_update, whose steps are done before all shards are known: leave one of "
            "them out");
  for (const std::string shard : {"fsdp.shard=1", "mesh.shard=2"}) {
    EXPECT_EQ(refused({"train.shards=4", "ranks=4", "parallel=fsdp", shard}),
              "train.shards is 4 with mesh.shard, whose copies sum on their own: leave one of them out");
  }
  for (const std::string strategy : {"dp", "ps", "local-sgd", "diloco"}) {
    EXPECT_EQ(refused({"train.shards=4", "parallel=" + strategy, "ranks=3"}),
              "train.shards is 4 with parallel=" + strategy +
                  ", which cannot sum over shards in their order: use parallel=ddp, parallel=zero1, parallel=zero2 or "
                  "parallel=fsdp");
  }
  EXPECT_EQ(refused({"train.shards=4", "head.parallel=naive"}),
            "train.shards is 4 with head.parallel=naive, which cannot sum over shards in their order: use "
            "head.parallel=sharded or replicated");
  EXPECT_EQ(refused({"train.shards=4", "memory.limit=1G"}),
            "train.shards is 4 with memory.limit, which moves classes between ranks: leave one of them out");
}

}  // namespace
}  // namespace tandem::job
