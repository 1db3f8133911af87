#include <gtest/gtest.h>

#include <set>

#include "tandem/base/error.h"
#include "tandem/job/epoch_hints.h"
#include "tandem/models/genotype.h"
#include "tandem/models/search_method.h"
#include "tandem/search/search_step.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::job {
namespace {

Words search(const Words& more) {
  return with({"model=search:s2", "model.cells=3", "model.channels=4", "train.batch=12", "search.lr=0.1"}, more);
}

struct Ended {
  WholeRun run;
  std::string alphas, genotype;
};

Ended searched(const Words& words, int64_t steps, const std::filesystem::path& store = {}) {
  Ended ended;
  ended.run =
      whole_run(words, steps, store, [&](const train::Step& step, const train::Task&, comm::ProcessGroup& group) {
        const auto& of_search = dynamic_cast<const search::SearchStep&>(step);
        if (group.rank() > 0) return;
        ended.genotype = of_search.genotype();
        for (const auto& shares : of_search.shares())
          ended.alphas += std::to_string(shares.square().sum().item<double>());
      });
  return ended;
}

void expect_same(const Ended& one, const Ended& other) {
  EXPECT_EQ(one.run.losses, other.run.losses);
  EXPECT_EQ(one.run.state, other.run.state);
  EXPECT_EQ(one.alphas, other.alphas);
  EXPECT_EQ(one.genotype, other.genotype);
}

TEST(Search, MovesTheAlphas) {
  const auto still = searched(search({"search.lr=0"}), 3), moved = searched(search({}), 3);
  EXPECT_NE(still.alphas, moved.alphas);
  EXPECT_NE(still.run.losses, moved.run.losses);
  EXPECT_EQ(searched(search({"search.warmup=99"}), 3).run.losses, still.run.losses);
}

TEST(Search, TheNumberOfRanksChangesNoBit) {
  for (const auto& [words, shards] :
       std::vector<std::pair<Words, std::string>>{{{"model=search:s3"}, "6"},
                                                  {{"search.hvp=fd"}, "3"},
                                                  {{"search.order=1", "train.clip=0.1"}, "3"},
                                                  {{"search.method=pc-darts", "search.partial=2"}, "3"},
                                                  {{"search.method=darts-minus"}, "3"},
                                                  {{"search.method=gdas"}, "3"},
                                                  {{"model=search:nas-bench-201"}, "3"},
                                                  {{"model=search:s4"}, "3"}}) {
    SCOPED_TRACE(testing::PrintToString(words));
    const auto all = search(with(words, {"train.shards=" + shards}));
    const auto one = searched(all, 2);
    for (const std::string ranks : {"2", "3"}) {
      if (shards == "6" || ranks == "3") expect_same(one, searched(with(all, {"ranks=" + ranks}), 2));
    }
  }
}

TEST(Search, GoesOnWithTheSameBitsAlsoOnAnotherNumberOfRanks) {
  for (const std::string method : {"darts", "darts-minus", "gdas"}) {
    SCOPED_TRACE(method);
    const auto words = search({"train.shards=6", "search.method=" + method});
    const auto whole = searched(with(words, {"ranks=2"}), 4);
    const test::TemporaryFolder folder;
    searched(with(words, {"ranks=2"}), 2, folder.path());
    const auto rest = searched(with(words, {"ranks=3"}), 4, folder.path());
    EXPECT_EQ(whole.run.hash, rest.run.hash);  // with the alphas; of the state, the best test is another one
    EXPECT_EQ(whole.genotype, rest.genotype);
  }
}

TEST(Search, RanksAreOneDeviceUpToRounding) {
  for (const auto& method : models::search_methods()) {
    SCOPED_TRACE(std::string(method.name));
    const auto words = search({"train.precision=float64", "model.norm=group", "search.partial=2",
                               "search.method=" + std::string(method.name)});
    const auto one = searched(words, 3);
    for (const std::string ranks : {"2", "5"}) {
      const auto several = searched(with(words, {"ranks=" + ranks}), 3);
      ASSERT_EQ(one.run.losses.size(), several.run.losses.size());
      for (size_t i = 0; i < one.run.losses.size(); ++i) EXPECT_NEAR(one.run.losses[i], several.run.losses[i], 1e-9);
      EXPECT_EQ(one.genotype, several.genotype);
    }
  }
}

TEST(Search, MethodsDiffer) {
  std::set<std::string> alphas;
  for (const auto& method : models::search_methods()) {
    alphas.insert(searched(search({"search.partial=2", "search.method=" + std::string(method.name)}), 3).alphas);
  }
  EXPECT_EQ(alphas.size(), models::search_methods().size());
}

std::string refused(const Words& words) {
  return test::text_of<SettingsError>([&] { check_training(job_of(search(words))); });
}

TEST(Search, WhatItCannotDoIsRefused) {
  EXPECT_EQ(refused({"parallel=fsdp", "ranks=2"}),
            "parallel is fsdp in a search, wanted ddp: the alphas need all weights, and the optimizer's state, on each "
            "rank");
  EXPECT_EQ(refused({"train.optimizer=adamw"}),
            "train.optimizer is adamw with search.order=2, wanted sgd: the gradient of the alphas is that of a step of "
            "SGD; search.order=1 takes any optimizer");
  EXPECT_EQ(refused({"train.decay_norms=false"}),
            "train.decay_norms is false with search.order=2, wanted true: or use search.order=1");
  EXPECT_EQ(refused({"head.parallel=sharded"}),
            "head.parallel is sharded in a search, wanted replicated: the alphas need all weights, and second "
            "derivatives, on each rank");
  EXPECT_EQ(refused({"head=arcface"}),
            "head is arcface with search.hvp=exact, wanted linear or softmax: its loss has no second derivatives; "
            "search.hvp=fd and search.order=1 need none");
  EXPECT_EQ(refused({"search.method=gdas", "ddp.unused=static"}),
            "ddp.unused is static with search.method=gdas, wanted find: each step leaves out the operations that it "
            "has not drawn");
  for (const std::string prefix : {"alphas.normal", "al"}) {
    EXPECT_EQ(refused({"model.freeze=" + prefix}),
              "model.freeze has '" + prefix +
                  "' in a search, wanted other parameters: the alphas are what a search "
                  "moves; search.lr=0 leaves them as they are");
  }
  EXPECT_EQ(refused({"search.lr=1e30"}), "search.lr is 1e+30, wanted 0..100");
  EXPECT_EQ(refused({"search.hvp=fd", "search.radius=1e-30"}), "search.radius is 1e-30, wanted 1e-9..1000");
  EXPECT_EQ(refused({"search.method=gdas", "model.freeze=stem"}), "nothing thrown");
  EXPECT_EQ(refused({"search.hvp=fd", "head=arcface"}), "nothing thrown");
  EXPECT_EQ(refused({"model.norm=sync", "ranks=2"}), "nothing thrown");
}

TEST(Search, IsToldIfItFindsNothing) {
  const auto hints = [](const Words& words) { return epoch_hints(job_of(search(words)), 120, 10); };
  EXPECT_TRUE(hints({}).empty());
  EXPECT_EQ(hints({"search.warmup=5", "train.epochs=5"}).back(),
            "the alphas stay as they begin: search.warmup lasts as long as the search");
  EXPECT_TRUE(hints({"search.warmup=5", "train.steps=51"}).empty());
  const std::string idle = "search.guard never acts: it does so from test 10 on, and there will be ";
  EXPECT_EQ(hints({"search.guard=true", "eval.every=6"}).back().substr(0, idle.size() + 2), idle + "9;");
  EXPECT_EQ(hints({"search.guard=true", "eval.every=0"}).back().substr(0, idle.size() + 2), idle + "1;");
  EXPECT_TRUE(hints({"search.guard=true", "train.steps=91"}).empty());
}

TEST(Search, IsTrainedAsPublishedUnlessSettingsSayOtherwise) {
  const auto job = job_of({"model=search:darts"});
  EXPECT_EQ(job.model.cells, 8);
  EXPECT_EQ(job.model.channels, 16);
  EXPECT_EQ(job.training.batch, 64);
  EXPECT_EQ(job.training.epochs, 50);
  EXPECT_EQ(job.optimizer.weight_decay, 3e-4);
  EXPECT_FALSE(job.optimizer.nesterov);
  const auto options = trainer_options(job, 391).schedule;
  EXPECT_DOUBLE_EQ(train::learning_rate(options, 0), 0.025);
  EXPECT_DOUBLE_EQ(train::learning_rate(options, 390), 0.025);
  EXPECT_NEAR(train::learning_rate(options, 49 * 391 + 7), 1.023679e-3, 1e-9);
  EXPECT_EQ(job_of({"model=search:darts", "train.batch=8"}).training.batch, 8);
  EXPECT_EQ(job_of({"model=search:nas-bench-201"}).model.cells, 15);
}

}  // namespace
}  // namespace tandem::job
