#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/job/large_ranks.h"
#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/table.h"
#include "tests/job/job_of.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// memory.limit, and what it says to a job that does not fit.
namespace tandem::job {
namespace {

/// The peak of each rank, exactly, under any split of 300 classes.
std::vector<RankPeak> exact_peaks(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts) {
  std::vector<RankPeak> peaks;
  for (int rank = 0; rank < job.parallel.ranks; ++rank)
    peaks.push_back(rehearse_rank(job, shape, rank, counts, {8}).peak());
  return peaks;
}

/// As plan and train split the classes of a job that is rehearsed.
std::vector<int64_t> fit(const Job& job, const DataShape& shape, const PeaksOf& peaks_of) {
  LargeRanks large(job, shape);
  return fit_counts(
      job, shape.classes, [&](const auto& counts) { return large.peaks(counts); }, peaks_of);
}

std::vector<int64_t> fit(const Job& job, const DataShape& shape) {
  return fit(job, shape, [&](const auto& counts) { return exact_peaks(job, shape, counts); });
}

TEST(MemoryLimit, ALimitIsMetToTheByteOrRefused) {
  memory::install_meter();
  const DataShape shape{300, {1, 8, 8}};
  auto job = job_of({"model=mlp", "embedding=16", "train.batch=16", "threads=1"});
  const auto peak = exact_peaks(job, shape, {300}).at(0);
  job.memory.limits = {peak.bytes};
  EXPECT_EQ(fit(job, shape), (std::vector<int64_t>{300}));
  job.memory.limits = {peak.bytes - 1};
  const auto text = test::text_of<SettingsError>([&] { fit(job, shape); });
  EXPECT_NE(text.find("with 300 classes rank 0 needs " + format_count(peak.bytes) + " bytes at its peak, in block '" +
                      peak.block + "'"),
            std::string::npos)
      << text;
}

/// They hold classes too, whatever part of a batch they get.
TEST(MemoryLimit, RanksAlongTensorTakeClasses) {
  memory::install_meter();
  const DataShape shape{3000, {1, 1, 64}};
  auto job = job_of({"model=none", "embedding=64", "train.batch=16", "threads=1", "ranks=4", "mesh.tensor=2"});
  const auto even = even_counts(job, shape.classes, 4);
  const auto peak = exact_peaks(job, shape, even).at(0).bytes;
  job.memory.limits = {peak * 2 / 3, peak * 2, peak, peak};
  const auto counts = fit(job, shape);
  EXPECT_EQ(comm::sum_of(counts), shape.classes);
  EXPECT_LT(counts[0], even[0]);
  EXPECT_GT(counts[1], even[1]);
  EXPECT_GT(counts[2], 0);
  EXPECT_GT(counts[3], 0);
  const auto most =
      largest_counts(job, shape.classes, [&](const auto& tried) { return exact_peaks(job, shape, tried); });
  EXPECT_GT(most[1], most[2]);
  EXPECT_NEAR(static_cast<double>(most[2]), static_cast<double>(even[2]), 16);
}

/// The number behind "wanted at most ".
int64_t most_in(const std::string& text) {
  const std::string words = "wanted at most ";
  const auto place = text.find(words);
  return place == text.npos ? -1 : std::atoll(text.c_str() + place + words.size());
}

TEST(MemoryLimit, AsManyClassesAsTheRefusalSaysFit) {
  memory::install_meter();
  const DataShape shape{300, {1, 8, 8}};
  for (const std::string head : {"head.parallel=sharded", "head.fused_update=true", "head.parallel=naive"}) {
    auto job = job_of({"model=mlp", "embedding=16", "train.batch=16", "threads=1", "ranks=2", head});
    const auto peaks = exact_peaks(job, shape, {150, 150});
    for (const int64_t less : {1, 1000}) {
      job.memory.limits = {peaks[0].bytes - less, peaks[1].bytes - less};
      const auto fit_of = [&](int64_t classes) { return fit(job, {classes, shape.image}); };
      const auto text = test::text_of<SettingsError>([&] { fit_of(320); });
      const auto most = most_in(text);
      EXPECT_TRUE(most > 0 && text.find("about") == std::string::npos) << head << ": " << text;
      if (most <= 0) continue;
      EXPECT_EQ(std::ranges::count_if(fit_of(most), [](int64_t count) { return count > 0; }), 2) << head;
      EXPECT_EQ(most_in(test::text_of<SettingsError>([&] { fit_of(most + 1); })), most) << head;
      const auto largest =
          largest_counts(job, 300, [&](const auto& counts) { return exact_peaks(job, shape, counts); });
      EXPECT_EQ(largest[0] + largest[1], most) << head;
    }
  }
}

TEST(MemoryLimit, ARankWithoutRoomForTheRestOfTheJobIsNamed) {
  memory::install_meter();
  const DataShape shape{300, {1, 8, 8}};
  auto job = job_of({"model=mlp", "embedding=16", "train.batch=16", "threads=1", "ranks=2"});
  const auto rest = exact_peaks(job, shape, {300, 0})[1].bytes;
  job.memory.limits = {int64_t{1} << 30, rest};
  EXPECT_EQ(fit(job, shape), (std::vector<int64_t>{300, 0}));
  job.memory.limits = {int64_t{1} << 30, rest - 1};
  const auto text = test::text_of<SettingsError>([&] { fit(job, shape); });
  EXPECT_TRUE(text.starts_with("memory.limit of rank 1 is " + format_count(rest - 1) + " bytes, wanted at least " +
                               format_count(rest) + " bytes, which the job needs without any class; with "))
      << text;
  EXPECT_TRUE(text.ends_with(": give more memory, or make train.batch smaller")) << text;
}

TEST(MemoryLimit, ATestThatDoesNotFitIsOfItsOwnBatch) {
  memory::install_meter();
  const DataShape shape{300, {1, 8, 8}};
  auto job = job_of({"model=mlp", "embedding=16", "train.batch=16", "eval.batch=4096", "threads=1"});
  const auto peaks_of = [&](const auto& counts) {
    return std::vector{rehearse_rank(job, shape, 0, counts, {8, 5000}).peak()};
  };
  const auto peak = peaks_of(std::vector<int64_t>{300})[0];
  EXPECT_TRUE(peak.in_test);
  job.memory.limits = {peak.bytes};
  EXPECT_EQ(fit(job, shape, peaks_of), (std::vector<int64_t>{300}));
  job.memory.limits = {exact_peaks(job, shape, {300})[0].bytes + 1000};
  const auto text = test::text_of<SettingsError>([&] { fit(job, shape, peaks_of); });
  EXPECT_NE(text.find(" bytes at its peak, in a test: give more memory, or make eval.batch smaller"), std::string::npos)
      << text;
}

TEST(MemoryLimit, OneImageAtATimeIsRefusedByTheSettingsThatCutTheBatch) {
  memory::install_meter();
  const DataShape shape{300, {1, 8, 8}};
  const auto fault = [&](const std::vector<std::string>& words, int rank) {
    const auto job = job_of(words);
    const auto counts = comm::split_sizes(300, job.parallel.ranks);
    return test::text_of<SettingsError>([&] { rehearse_rank(job, shape, rank, counts, {8}); });
  };
  EXPECT_EQ(fault({"model=resnet_glyph", "embedding=16", "train.batch=4", "train.accumulate=4"}, 0),
            "train.batch is 4 with ranks 1 and train.accumulate 4, which leaves one image at a time, wanted more for "
            "model resnet_glyph: lower train.accumulate, or raise train.batch");
  EXPECT_EQ(fault({"model=resnet_glyph", "embedding=16", "train.batch=3", "train.accumulate=2"}, 0),
            "train.batch is 3 with ranks 1 and train.accumulate 2, which leaves one image at a time, wanted more for "
            "model resnet_glyph: lower train.accumulate, or raise train.batch");
  EXPECT_EQ(fault({"model=resnet_glyph", "embedding=16", "train.batch=5", "train.accumulate=3"}, 0),
            "train.batch is 5 with ranks 1 and train.accumulate 3, which leaves one image at a time, wanted more for "
            "model resnet_glyph: lower train.accumulate, or raise train.batch");
  EXPECT_EQ(fault({"model=resnet_glyph", "embedding=16", "train.batch=3", "ranks=2"}, 1),
            "train.batch is 3 with ranks 2, which leaves one image at a time, wanted more for model resnet_glyph: "
            "raise train.batch");
}

TEST(MemoryLimit, OneImageAtATimeIsRefusedHoweverTheBatchIsCut) {
  memory::install_meter();
  const DataShape shape{300, {1, 8, 8}};
  const auto fault = [&](const Words& words) {
    const auto job = job_of(with({"model=resnet_glyph", "embedding=16"}, words));
    const auto counts = even_counts(job, 300, job.parallel.ranks);
    return test::text_of<SettingsError>([&] {
      rehearse_rank(job, shape, 0, {counts, choose_recomputation(job, shape, counts).plan}, {8});
    });
  };
  EXPECT_EQ(
      fault({"train.batch=1", "recompute=sqrt"}),
      "train.batch is 1 with ranks 1, which leaves one image at a time, wanted more for model resnet_glyph: raise "
      "train.batch");
  EXPECT_EQ(fault({"train.batch=11", "train.shards=6"}),
            "train.batch is 11 with train.shards 6, which leaves one image at a time, wanted more for model "
            "resnet_glyph: lower train.shards, or raise train.batch");
  EXPECT_EQ(fault({"train.batch=24", "train.shards=8", "model.norm=ghost", "model.ghost=2"}),
            "model.ghost is 2 with train.batch 24 and train.shards 8, which leaves one image on its own, wanted more "
            "for model resnet_glyph: change model.ghost or train.batch");
  EXPECT_EQ(fault({"train.batch=26", "parallel=dp", "ranks=2", "model.norm=ghost", "model.ghost=3"}),
            "model.ghost is 3 with train.batch 26 and ranks 2, which leaves one image on its own, wanted more for "
            "model resnet_glyph: change model.ghost or train.batch");
  EXPECT_EQ(
      fault({"train.batch=3", "parallel=dp", "ranks=2"}),
      "train.batch is 3 with ranks 2, which leaves one image at a time, wanted more for model resnet_glyph: raise "
      "train.batch");
}

/// Neither the first look nor the exact one refuses what fits, whichever ranks hold what.
TEST(MemoryLimit, WhatAStrategyNeedsIsEnough) {
  memory::install_meter();
  const DataShape shape{300, {1, 8, 8}};
  for (const auto& words : std::vector<Words>{{"parallel=ddp"},
                                              {"parallel=zero1"},
                                              {"parallel=zero2"},
                                              {"parallel=fsdp"},
                                              {"parallel=ps"},
                                              {"parallel=ps", "ps.servers=1"},
                                              {"parallel=ps", "ps.update=server"},
                                              {"parallel=ps", "ps.update=server", "ps.servers=1"},
                                              {"parallel=ps", "ps.update=server", "ps.servers=2"},
                                              {"parallel=local-sgd"},
                                              {"parallel=diloco"}}) {
    SCOPED_TRACE(testing::PrintToString(words));
    auto job = job_of(with({"model=mlp", "embedding=128", "train.batch=16", "threads=1", "ranks=3"}, words));
    const auto even = even_counts(job, 300, 3);
    job.memory.limits.clear();
    for (const auto& peak : exact_peaks(job, shape, even)) job.memory.limits.push_back(peak.bytes);
    EXPECT_EQ(fit(job, shape), even);
  }
}

TEST(MemoryLimit, ALimitOfEachRankMovesTheClasses) {
  memory::install_meter();
  const DataShape shape{3000, {1, 8, 8}};
  auto job = job_of({"model=mlp", "embedding=64", "train.batch=15", "threads=1", "ranks=3"});
  const auto even = exact_peaks(job, shape, {1000, 1000, 1000});
  job.memory.limits = {even[0].bytes + (1 << 20), even[1].bytes + (1 << 20), even[2].bytes - (1 << 18)};
  const auto counts = fit(job, shape);
  const auto peaks = exact_peaks(job, shape, counts);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_LE(peaks[rank].bytes, job.memory.limits[rank]);
  EXPECT_LT(counts[2], 1000);
  EXPECT_EQ(counts[0] + counts[1] + counts[2], 3000);
}

/// What the check before the run would have refused: one rank runs out of memory in its first step.
TEST(MemoryLimit, WhatExceedsTheLimitEndsAllRanksAndSavesNothing) {
  memory::install_meter();
  const test::TemporaryFolder folder;
  const Patterns patterns;
  const auto job = job_of({"model=mlp", "embedding=16", "train.batch=15", "ranks=3", "train.steps=4"});
  const auto shape = shape_of(job, patterns);
  std::atomic<int> ended{0};
  std::string table;
  const auto text = test::text_of<c10::OutOfMemoryError>([&] {
    comm::run_ranks(3,
                    [&](comm::ProcessGroup& group) {
                      const auto loader = training_loader(job, patterns, group);
                      const auto [mesh, task, trace, step, search] = assemble(job, shape, group);
                      train::CheckpointStore store(folder.path());
                      train::Trainer trainer(*step, *loader, nullptr, trainer_options(job, 4), &store, group);
                      std::optional<memory::LimitScope> limit;
                      if (group.rank() == 1) limit.emplace(1, memory::account(1).live_bytes() + 20'000);
                      train::Observer nobody;
                      try {
                        trainer.run(nobody);
                      } catch (...) {
                        ++ended;
                        if (limit) table = memory::block_table(limit->refused().value());
                        throw;
                      }
                    },
                    {.threads = 1});
  });
  EXPECT_EQ(ended, 3);
  EXPECT_NE(text.find(" of rank 1, block '"), std::string::npos) << text;
  EXPECT_NE(table.find("fc1"), std::string::npos) << table;
  EXPECT_TRUE(train::CheckpointStore(folder.path()).list().empty());
}

}  // namespace
}  // namespace tandem::job
