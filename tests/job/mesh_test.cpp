#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/job/parts.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// Sizes of the mesh's axes, and over which of them the classes are split.
namespace tandem::job {
namespace {

using Counts = std::vector<int64_t>;

std::string refused(const Words& words) {
  return test::text_of<SettingsError>([&] { check_training(job_of(words)); });
}

std::vector<int> sizes_of(const Words& words) {
  const auto job = job_of(words);
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  return {sizes.data, sizes.shard, sizes.tensor, sizes.pipeline};
}

TEST(Mesh, TheRanksAlongDataFollow) {
  EXPECT_EQ(sizes_of({"ranks=6"}), (std::vector<int>{6, 1, 1, 1}));
  EXPECT_EQ(sizes_of({"ranks=6", "mesh.tensor=2"}), (std::vector<int>{3, 1, 2, 1}));
  EXPECT_EQ(sizes_of({"ranks=8", "mesh.tensor=2", "mesh.pipeline=2"}), (std::vector<int>{2, 1, 2, 2}));
  for (const std::string strategy : {"zero1", "zero2", "fsdp"}) {
    EXPECT_EQ(sizes_of({"ranks=4", "parallel=" + strategy}), (std::vector<int>{1, 4, 1, 1}));
    EXPECT_EQ(sizes_of({"ranks=4", "parallel=" + strategy, "mesh.shard=2"}), (std::vector<int>{2, 2, 1, 1}));
    EXPECT_EQ(sizes_of({"ranks=4", "parallel=" + strategy, "fsdp.shard=2"}), (std::vector<int>{2, 2, 1, 1}));
    EXPECT_EQ(sizes_of({"ranks=8", "parallel=" + strategy, "mesh.shard=2", "mesh.tensor=2"}),
              (std::vector<int>{2, 2, 2, 1}));
  }
  EXPECT_EQ(sizes_of({"ranks=4", "parallel=ps", "ps.update=server", "mesh.tensor=2"}), (std::vector<int>{1, 2, 2, 1}));
}

TEST(Mesh, AShorthandIsDdpWithAllRanksAlongOneAxis) {
  EXPECT_EQ(sizes_of({"ranks=3", "parallel=tensor"}), (std::vector<int>{1, 1, 3, 1}));
  EXPECT_EQ(sizes_of({"ranks=3", "parallel=tensor", "mesh.tensor=3"}), (std::vector<int>{1, 1, 3, 1}));
  EXPECT_EQ(sizes_of({"ranks=3", "parallel=pipeline"}), (std::vector<int>{1, 1, 1, 3}));
  const auto job = job_of({"ranks=3", "parallel=tensor"});
  EXPECT_EQ(job.parallel.strategy->name, "ddp");
  settings::Settings saved(schema());
  saved.load_toml(job.settings.to_toml(), "settings.toml");
  EXPECT_EQ(read_job(saved).parallel.tensor, 3);
  set_ranks(saved, 6);
  EXPECT_EQ(saved.get_string("parallel"), "ddp");
  EXPECT_EQ(read_job(saved).parallel.tensor, 3);
  set_ranks(saved, 2);
  EXPECT_EQ(read_job(saved).parallel.tensor, 1);
  EXPECT_EQ(refused({"ranks=4", "parallel=tensor", "mesh.tensor=2"}),
            "mesh.tensor is 2 with parallel=tensor and ranks 4, wanted 4, all of them: leave mesh.tensor out, or use "
            "parallel=ddp");
}

TEST(Mesh, TheFormerNameOfShardStillOpensARun) {
  settings::Settings saved(schema());
  saved.load_toml("parallel = \"fsdp\"\nranks = 4\n[fsdp]\nshard = 2\nreshard = \"true\"\n", "settings.toml");
  EXPECT_EQ(read_job(saved).parallel.mesh(4).data, 2);
  saved.apply(Words{"mesh.shard=4"});
  EXPECT_EQ(read_job(saved).parallel.mesh(4).data, 1);
  EXPECT_EQ(refused({"parallel=fsdp", "ranks=4", "mesh.shard=2", "fsdp.shard=2"}),
            "fsdp.shard is given beside mesh.shard, its name by now, wanted one of them: leave fsdp.shard out");
}

TEST(Mesh, SizesThatDoNotFitTheRanksAreRefused) {
  EXPECT_EQ(refused({"ranks=4", "mesh.tensor=3"}),
            "mesh.tensor is 3 with 4 ranks, wanted a number that divides them: give a multiple of 3 ranks, or set "
            "mesh.tensor=1");
  EXPECT_EQ(refused({"ranks=1", "mesh.tensor=2", "mesh.pipeline=2"}),
            "mesh.tensor * mesh.pipeline is 4 with 1 rank, wanted a number that divides them: give a multiple of 4 "
            "ranks, or set mesh.tensor=1 and mesh.pipeline=1");
  EXPECT_EQ(refused({"ranks=4", "parallel=zero1", "mesh.tensor=2", "mesh.shard=4"}),
            "mesh.shard * mesh.tensor is 8 with 4 ranks, wanted a number that divides them: give a multiple of 8 "
            "ranks, or set mesh.shard=0 and mesh.tensor=1");
  auto list = job_of({"ranks=4", "parallel=zero1", "mesh.tensor=2", "mesh.shard=2", "model=none"}).settings;
  set_ranks(list, 8);
  EXPECT_EQ(read_job(list).parallel.tensor, 2);
  set_ranks(list, 6);
  EXPECT_EQ(read_job(list).parallel.tensor, 1);
  EXPECT_EQ(read_job(list).parallel.shard, 0);
}

TEST(Mesh, ClassesAreSplitOverTheRanksOfTheHead) {
  const auto counts_of = [](const Words& words) {
    const auto job = job_of(words);
    return even_counts(job, 11, job.parallel.ranks);
  };
  const auto all_of = [&](const Words& words) { return with_copies(job_of(words), counts_of(words)); };
  EXPECT_EQ(counts_of({"ranks=4", "mesh.tensor=2"}), (Counts{3, 3, 3, 2}));
  EXPECT_EQ(all_of({"ranks=4", "mesh.tensor=2", "head.over=last"}), (Counts{3, 3, 3, 2}));
  EXPECT_EQ(counts_of({"ranks=4", "mesh.tensor=2", "head.over=data"}), (Counts{6, 0, 5, 0}));
  EXPECT_EQ(all_of({"ranks=4", "mesh.tensor=2", "head.over=data"}), (Counts{6, 6, 5, 5}));
  EXPECT_EQ(
      refused({"ranks=4", "mesh.tensor=4", "head.over=data,shard", "model=none"}),
      "head.over is data,shard, along which there is one rank, wanted an axis with several: use head.over=all, or "
      "head.parallel=replicated");
  EXPECT_EQ(counts_of({"ranks=6", "mesh.tensor=2", "parallel=ps", "ps.servers=1"}), (Counts{3, 3, 3, 2, 0, 0}));
  EXPECT_EQ(all_of({"ranks=6", "mesh.tensor=2", "parallel=ps", "ps.servers=1", "head.over=data"}),
            (Counts{6, 6, 5, 5, 0, 0}));
  EXPECT_EQ(refused({"ranks=4", "mesh.tensor=2", "head.over=tensor", "model=none"}),
            "head.over is tensor with 2 ranks along data, which share a batch, wanted data among its axes: add data, "
            "or use head.over=all");
  EXPECT_EQ(refused({"ranks=4", "parallel=zero1", "mesh.shard=2", "head.over=data"}),
            "head.over is data with 2 ranks along shard, which share a batch, wanted shard among its axes: add shard, "
            "or use head.over=all");
  EXPECT_EQ(refused({"head.over="}), "head.over is empty, wanted all, last, or axes, each once: use head.over=all");
  EXPECT_EQ(refused({"head.over=all,data"}),
            "head.over is all,data, wanted all, last, or axes, each once: use head.over=all");
  EXPECT_EQ(refused({"head.over=rows"}), "head.over is 'rows', wanted all, last, data, shard, tensor or pipeline");
  EXPECT_EQ(idle_settings(job_of({"ranks=4", "mesh.tensor=2", "head.over=data", "head.parallel=replicated"})),
            Words{"head.over has no effect with head.parallel=replicated"});
  EXPECT_EQ(idle_settings(job_of({"head.over=data"})), Words{"head.over has no effect with one rank"});
}

/// As a run's saved settings have it, where every setting is given.
TEST(Mesh, ARunGoesOnWithAnotherNumberOfRanks) {
  auto saved = job_of({"ranks=2", "parallel=tensor", "model=none"}).settings;
  saved.set("ranks", "4");
  EXPECT_EQ(read_job(saved).parallel.mesh(4).tensor, 4);
  saved.set("parallel", "ddp");
  EXPECT_EQ(read_job(saved).parallel.mesh(4).tensor, 1);
  auto other = job_of({"ranks=4", "parallel=zero1", "mesh.shard=2", "mesh.tensor=2", "head.over=shard"}).settings;
  set_ranks(other, 8);
  EXPECT_EQ(read_job(other).parallel.mesh(8).data, 2);
}

const Words kJob = {"model=none",     "embedding=64",  "head=arcface", "train.precision=float64",
                    "train.batch=23", "train.lr=0.05", "train.clip=1"};

void expect_close(const WholeRun& several, const WholeRun& one) {
  ASSERT_EQ(several.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(several.losses[i], one.losses[i], 1e-12) << i;
  EXPECT_EQ(several.top1, one.top1);
}

/// The ranks of a batch have 12 and 11 images; 11 classes.
TEST(Mesh, RanksAlongTensorTrainAsOneDevice) {
  const auto one = whole_run(kJob, 12);
  for (const auto& words :
       std::vector<Words>{{"ranks=2", "parallel=tensor"},
                          {"ranks=2", "parallel=tensor", "head.parallel=naive"},
                          {"ranks=4", "mesh.tensor=2"},
                          {"ranks=4", "mesh.tensor=2", "train.accumulate=3"},
                          {"ranks=4", "mesh.tensor=2", "head.over=data"},
                          {"ranks=4", "mesh.tensor=2", "head.parallel=replicated"},
                          {"ranks=4", "mesh.tensor=2", "head.parallel=replicated", "parallel=zero1"},
                          {"ranks=4", "mesh.tensor=2", "head.parallel=replicated", "parallel=ps", "ps.update=server"},
                          {"ranks=4", "mesh.tensor=2", "parallel=ps", "ps.servers=1"},
                          {"ranks=8", "mesh.tensor=2", "mesh.shard=2", "head.parallel=replicated", "parallel=fsdp"}}) {
    SCOPED_TRACE(testing::PrintToString(words));
    expect_close(whole_run(with(kJob, words), 12), one);
  }
}

TEST(Mesh, RanksAlongTensorAreCopiesOfRanksThatTrainApart) {
  for (const std::string strategy : {"local-sgd", "diloco"}) {
    const auto job =
        with(kJob, {"parallel=" + strategy, "local_sgd.every=3", "diloco.every=3", "head.parallel=replicated"});
    expect_close(whole_run(with(job, {"ranks=4", "mesh.tensor=2"}), 12), whole_run(with(job, {"ranks=2"}), 12));
  }
}

TEST(Mesh, EachStrategyThatDividesParametersHasCopies) {
  const Words job = {"model=mlp",     "embedding=16", "train.precision=float64", "train.batch=23",
                     "train.lr=0.05", "train.clip=1", "head.parallel=replicated"};
  const auto one = whole_run(job, 6);
  for (const std::string strategy : {"zero1", "zero2", "fsdp"}) {
    for (const std::string accumulate : {"1", "3"}) {
      SCOPED_TRACE(strategy + ' ' + accumulate);
      const auto several = whole_run(
          with(job, {"ranks=4", "mesh.shard=2", "parallel=" + strategy, "train.accumulate=" + accumulate}), 6);
      expect_close(several, one);
    }
  }
}

/// From 2 x 2 ranks to one and back: what is read is what was written, bit for bit.
TEST(Mesh, AnotherMeshResumesTheSameCheckpoints) {
  const Words mesh = {"ranks=4", "mesh.tensor=2"}, copies = with(mesh, {"head.over=data"});
  const auto whole = whole_run(kJob, 12);
  const test::TemporaryFolder folder;
  const auto written = whole_run(with(kJob, mesh), 4, folder.path());
  for (const auto& words : {Words{}, copies, Words{"ranks=2", "parallel=tensor"}, mesh}) {
    const auto read = whole_run(with(kJob, words), 4, folder.path());
    EXPECT_EQ(read.hash, written.hash) << testing::PrintToString(words);
    EXPECT_EQ(read.state, written.state) << testing::PrintToString(words);
  }
  const auto middle = whole_run(kJob, 8, folder.path()), last = whole_run(with(kJob, copies), 12, folder.path());
  ASSERT_EQ(last.losses.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(middle.losses[i], whole.losses[i + 4], 1e-12);
    EXPECT_NEAR(last.losses[i], whole.losses[i + 8], 1e-12);
  }
}

}  // namespace
}  // namespace tandem::job
