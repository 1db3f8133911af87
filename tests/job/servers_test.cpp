#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/comm/agree.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// parallel=ps with ps.servers and ps.update.
namespace tandem::job {
namespace {

const Words kSmall = {"model=mlp", "train.batch=24", "embedding=16", "train.lr=0.05", "head=softmax"};

/// `workers` that train, and `apart` that serve.
Words servers_of(int workers, int apart, const std::string& update) {
  return with(kSmall, {"parallel=ps", "ranks=" + std::to_string(workers + apart), "ps.servers=" + std::to_string(apart),
                       "ps.update=" + update});
}

TEST(Servers, LossesAreThoseOfOneRank) {
  for (const std::string head : {"head.parallel=sharded", "head.parallel=replicated"}) {
    const Words more = {"train.batch=31", "train.precision=float64", head};
    const auto expected = whole_run(with(kSmall, more), 6);
    for (const std::string update : {"worker", "server"}) {
      for (const int workers : {1, 2, 3, 4}) {
        for (const int apart : {0, 1, 2}) {
          SCOPED_TRACE(head + ' ' + update + ' ' + std::to_string(workers) + '+' + std::to_string(apart));
          const auto found = whole_run(with(servers_of(workers, apart, update), more), 6);
          ASSERT_EQ(found.losses.size(), expected.losses.size());
          for (size_t i = 0; i < found.losses.size(); ++i) EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12);
          EXPECT_EQ(found.top1, expected.top1);
        }
      }
    }
  }
}

TEST(Servers, BitsAreThoseOfDataParallelismOverTheWorkers) {
  for (const auto& more : std::vector<Words>{{"model=resnet_glyph", "train.batch=21"},
                                             {"head.parallel=replicated", "train.optimizer=adamw"},
                                             {"train.accumulate=3", "train.batch=23"},
                                             {"model.norm=sync", "model=resnet_glyph", "train.batch=19"},
                                             {"train.precision=bf16", "recompute=sqrt", "model=resnet_glyph"}}) {
    for (const auto& [workers, apart] : {std::pair{2, 0}, {2, 1}, {3, 2}}) {
      const auto expected = whole_run(with(with(kSmall, {"ranks=" + std::to_string(workers)}), more), 4);
      for (const std::string update : {"worker", "server"}) {
        SCOPED_TRACE(testing::PrintToString(more) + ' ' + update + ' ' + std::to_string(workers) + '+' +
                     std::to_string(apart));
        const auto found = whole_run(with(servers_of(workers, apart, update), more), 4);
        EXPECT_EQ(found.losses, expected.losses);
        EXPECT_EQ(found.hash, expected.hash);
        EXPECT_EQ(found.state, expected.state);
        EXPECT_EQ(found.top1, expected.top1);
      }
    }
  }
}

/// Of each rank.
struct Held {
  std::vector<int64_t> optimizer;  // numbers of the optimizer's state beside the head's
  std::vector<int64_t> classes;
};

Held held_after(const Words& words, int64_t steps) {
  Held held;
  whole_run(words, steps, {}, [&](const train::Step& step, const train::Task& task, comm::ProcessGroup& group) {
    int64_t own = 0;
    for (const auto& [name, tensor, placement] : step.state()) {
      if (name.starts_with("optimizer.momentum_buffer.") && !name.ends_with(kHeadWeight)) own += tensor.numel();
    }
    const Held of_all{comm::gather_numbers(own, group),
                      comm::gather_numbers(task.parameters().back().tensor.size(0), group)};
    if (group.rank() == 0) held = of_all;
  });
  return held;
}

TEST(Servers, ApartHoldNoClassesAndAloneHoldTheOptimizersState) {
  const auto numbers = held_after(kSmall, 1).optimizer.at(0);
  const auto by_workers = held_after(servers_of(2, 1, "worker"), 2),
             by_servers = held_after(servers_of(2, 2, "server"), 2);
  EXPECT_EQ(by_workers.optimizer, (std::vector<int64_t>{numbers, numbers, 0}));
  EXPECT_EQ(by_servers.optimizer, (std::vector<int64_t>{0, 0, numbers - numbers / 2, numbers / 2}));
  EXPECT_EQ(by_workers.classes, (std::vector<int64_t>{6, 5, 0}));
  EXPECT_EQ(by_servers.classes, (std::vector<int64_t>{6, 5, 0, 0}));
}

/// A run goes on with another number of workers and of servers, with another who steps, and as ddp; and back.
TEST(Servers, CheckpointsAreThoseOfDataParallelism) {
  const Words more = {"train.precision=float64", "train.clip=1"};
  const auto ddp = with(with(kSmall, {"ranks=2"}), more);
  const auto whole = whole_run(ddp, 12);
  const std::vector<Words> course = {with(servers_of(2, 1, "worker"), more),
                                     with(servers_of(3, 2, "server"), more),
                                     ddp,
                                     with(servers_of(2, 0, "server"), more),
                                     with(servers_of(1, 2, "worker"), more),
                                     with(servers_of(2, 1, "server"), more)};
  const test::TemporaryFolder folder;
  std::vector<double> losses;
  for (size_t i = 0; i < course.size(); ++i) {
    const auto part = whole_run(course[i], static_cast<int64_t>(2 * i + 2), folder.path() / "store");
    losses.insert(losses.end(), part.losses.begin(), part.losses.end());
  }
  ASSERT_EQ(losses.size(), whole.losses.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], whole.losses[i], 1e-12) << i;
}

TEST(Servers, RefuseWhatLeavesNobodyToTrain) {
  const auto refused = [](const Words& words) {
    return test::text_of<SettingsError>([&] { check_training(job_of(words)); });
  };
  EXPECT_EQ(
      refused({"parallel=ps", "ranks=3", "ps.servers=3"}),
      "ps.servers is 3 with 3 ranks, wanted 0..2, so that a rank is left to train: add ranks, or set ps.servers=0: "
      "each rank trains and serves");
  EXPECT_EQ(refused({"parallel=ps", "ranks=4", "ps.servers=2", "ps.aggregate=trimmed-mean"}),
            "ps.aggregate is trimmed-mean with ranks 4 and ps.servers 2, wanted 3 ranks or more that train");
  EXPECT_EQ(refused({"parallel=ps", "ranks=4", "ps.servers=1", "train.batch=2"}),
            "train.batch is 2, wanted at least 3, one image a rank");
  check_training(job_of({"parallel=ps", "ranks=4", "ps.servers=2", "train.batch=2"}));
  check_training(job_of({"parallel=ddp", "ranks=2", "ps.servers=2"}));  // without effect
}

}  // namespace
}  // namespace tandem::job
