#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// ps.mode=async: whole jobs.
namespace tandem::job {
namespace {

const Words kSmall = {"model=mlp",    "train.batch=23",          "embedding=16", "train.lr=0.02", "parallel=ps",
                      "head=softmax", "head.parallel=replicated"};

Words async_of(int workers, int apart, int64_t staleness) {
  return with(kSmall, {"ps.mode=async", "ranks=" + std::to_string(workers + apart),
                       "ps.servers=" + std::to_string(apart), "ps.staleness=" + std::to_string(staleness)});
}

TEST(AsyncServers, WithoutStalenessHaveTheBitsOfSync) {
  for (const auto& more : std::vector<Words>{{}, {"model=resnet_glyph", "train.clip=0.5"}, {"train.accumulate=3"}}) {
    for (const auto& [workers, apart] : {std::pair{1, 0}, {3, 0}, {2, 1}}) {
      SCOPED_TRACE(testing::PrintToString(more) + std::to_string(workers) + '+' + std::to_string(apart));
      const auto async = with(async_of(workers, apart, 0), more);
      const auto sync = whole_run(with(async, {"ps.mode=sync", "ps.update=server"}), 5), found = whole_run(async, 5);
      EXPECT_EQ(found.losses, sync.losses);
      EXPECT_EQ(found.state, sync.state);
      EXPECT_FALSE(value_of(found.facts, "most_lag"));
    }
  }
}

/// The first step has the first weights; every step is told of once, in order; all ranks end with one model.
TEST(AsyncServers, Train) {
  for (const auto& more : std::vector<Words>{{},
                                             {"model=resnet_glyph", "train.clip=5"},
                                             {"train.accumulate=2", "train.optimizer=adamw"},
                                             {"train.precision=bf16", "recompute=sqrt", "model=resnet_glyph"},
                                             {"ps.aggregate=median", "train.precision=float64"}}) {
    for (const auto& [workers, apart] : {std::pair{3, 0}, {2, 1}, {3, 2}}) {
      SCOPED_TRACE(testing::PrintToString(more) + std::to_string(workers) + '+' + std::to_string(apart));
      const auto words = with(async_of(workers, apart, 2), more);
      const auto sync = whole_run(with(words, {"ps.mode=sync"}), 12), found = whole_run(words, 12);
      ASSERT_EQ(found.losses.size(), 12U);
      EXPECT_NEAR(found.losses[0], sync.losses[0], 1e-6);
      EXPECT_LT(found.losses[11], found.losses[0]);
      EXPECT_EQ(value_of(found.facts, "steps_with_lag"), 12 * workers);
      EXPECT_LE(value_of(found.facts, "most_lag"), 2);
      EXPECT_LE(value_of(found.facts, "sum_of_lags"), 2 * 12 * workers);
    }
  }
}

/// In training a rank has the loss of its own samples.
TEST(AsyncServers, ATestHasTheLossOfAllSamples) {
  for (const Words& more : std::vector<Words>{{}, {"train.ema=0.7"}}) {
    for (const auto& [workers, apart] : {std::pair{3, 0}, {2, 1}}) {
      SCOPED_TRACE(testing::PrintToString(more) + std::to_string(workers) + '+' + std::to_string(apart));
      const test::TemporaryFolder folder;
      const auto words = with(async_of(workers, apart, 2), with(more, {"train.precision=float64"}));
      const auto run = whole_run(words, 6, folder.path() / "store");
      const auto scores = scores_of(with(kSmall, {"train.precision=float64"}), folder.path() / "store");
      EXPECT_NEAR(run.test_loss, scores.value("loss"), 1e-11);
      EXPECT_EQ(run.top1, scores.value("top1"));
    }
  }
}

/// A test and a save see all updates, and the steps after them begin with all.
TEST(AsyncServers, SaveWhatAllStepsHaveMade) {
  const test::TemporaryFolder folder;
  const auto words = with(async_of(2, 1, 3), {"eval.every=4", "checkpoint.every=4", "train.precision=float64"});
  const auto first = whole_run(words, 8, folder.path() / "store");
  const auto kept = whole_run(with(words, {"ps.mode=sync", "ps.update=server"}), 8, folder.path() / "store");
  EXPECT_TRUE(kept.losses.empty());
  EXPECT_EQ(kept.state, first.state);
  EXPECT_EQ(kept.top1, first.top1);
  EXPECT_EQ(whole_run(words, 12, folder.path() / "store").losses.size(), 4U);
}

TEST(AsyncServers, NameTheStepWhoseLossIsNotFinite) {
  for (const auto& [workers, apart] : {std::pair{3, 0}, {2, 1}}) {
    const auto text = test::text_of<NonFiniteError>(
        [&, workers = workers, apart = apart] { whole_run(with(async_of(workers, apart, 2), {"train.lr=1e30"}), 12); });
    EXPECT_TRUE(text.find("not finite") != text.npos || text.find("finite number") != text.npos) << text;
    EXPECT_NE(text.find(" step "), text.npos) << text;
  }
}

TEST(AsyncServers, RefuseWhatMeetsInEachStep) {
  const auto refused = [](const Words& more) {
    return test::text_of<SettingsError>([&] { check_training(job_of(with(async_of(2, 0, 2), more))); });
  };
  for (const std::string form : {"sharded", "naive"}) {
    EXPECT_EQ(refused({"head.parallel=" + form}),
              "ps.mode is async with head.parallel=" + form +
                  ", for which all ranks meet in each step: use head.parallel=replicated, or ps.mode=sync");
  }
  EXPECT_EQ(refused({"train.skip_nonfinite=2"}),
            "ps.mode is async with train.skip_nonfinite, which takes a step back when later ones have begun: leave "
            "train.skip_nonfinite out, or use ps.staleness=0");
  EXPECT_EQ(refused({"train.precision=float16"}),
            "ps.mode is async with train.precision=float16, which takes a step back when later ones have begun: leave "
            "train.precision=float16 out, or use ps.staleness=0");
  check_training(job_of(with(async_of(2, 0, 0), {"train.skip_nonfinite=2"})));
  check_training(job_of({"parallel=ddp", "ps.mode=async", "ps.staleness=9"}));  // without effect
}

}  // namespace
}  // namespace tandem::job
