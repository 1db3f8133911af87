#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <mutex>

#include "tandem/base/error.h"
#include "tandem/base/finite.h"
#include "tandem/base/rng.h"
#include "tandem/comm/world.h"
#include "tests/support/files.h"
#include "tests/train/classifier_task.h"

namespace tandem::train {
namespace {

constexpr int kRuns = 40;
constexpr size_t kOfBackbone = 6;  // parameters of an mlp; the next is the head's

/// Where one NaN is put.
struct FaultPoint {
  int ranks = 1, rank = 0;  // of the world; that gets the NaN
  int64_t step = 0;         // counted from 1
  size_t parameter = 0;     // index in Task::parameters()
  bool is_fused = false;    // the head is updated in backward
  int64_t accumulate = 1;
  bool is_whole = false;  // the head, on each rank
};

/// One NaN, in the middle of a gradient.
Tensor spoilt(const Tensor& gradient) {
  auto bad = gradient.clone();
  bad.view({-1})[bad.numel() / 2] = std::numeric_limits<double>::quiet_NaN();
  return bad;
}

class FaultyTask : public ClassifierTask {
 public:
  FaultyTask(const Recipe& recipe, const FaultPoint& fault, comm::ProcessGroup& group)
      : ClassifierTask(recipe, group), fault_(fault), is_own_(group.rank() == fault.rank) {
    if (!is_own_) return;
    parameters()[fault.parameter].tensor.register_hook(
        [this](const Tensor& gradient) { return is_now_ && gradient.defined() ? spoilt(gradient) : gradient; });
  }

  void begin_step(int64_t step) override {
    ClassifierTask::begin_step(step);
    is_now_ = is_own_ && step + 1 == fault_.step;
  }

  void set_row_hooks(RowUpdate update, RowsRead read) override {
    if (!update || !is_now_ || fault_.parameter + 1 < parameters().size()) {
      return ClassifierTask::set_row_hooks(std::move(update), std::move(read));
    }
    ClassifierTask::set_row_hooks(
        [update](const Rows& rows, const Tensor& gradient) {
          update(rows, rows.begin == 0 ? spoilt(gradient) : gradient);
        },
        std::move(read));
  }

 private:
  FaultPoint fault_;
  bool is_own_, is_now_ = false;
};

/// The n-th fault point. One in three is in the head, the last of the parameters.
FaultPoint fault_point(int n) {
  CounterRng random(20261122, 1, n);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random.uniform(0, static_cast<double>(limit))); };
  FaultPoint fault;
  fault.ranks = 1 + static_cast<int>(below(4));
  fault.rank = static_cast<int>(below(fault.ranks));
  fault.step = 4 + below(6);
  fault.is_fused = below(2) == 1;
  fault.accumulate = fault.is_fused ? 1 : 1 + below(3);
  fault.parameter = below(3) == 0 ? kOfBackbone : below(kOfBackbone);
  return fault;
}

struct Ended {
  std::vector<ExitCode> codes;
  std::vector<std::string> texts;
  std::string parameter;
};

/// Where the fault lies in the strategy's world, and what its steps are made with.
FaultPoint in_world(FaultPoint fault, const parallel::Strategy& strategy) {
  if (strategy.is_one_process) fault.ranks = 1, fault.rank = 0;
  return fault;
}

Ended run(const FaultPoint& fault, const parallel::Strategy& strategy,
          const parallel::StrategyOptions& options_of_ranks, CheckpointStore& store) {
  const Patterns patterns;
  const Recipe recipe = {.is_whole = fault.is_whole, .steps_in_backward = fault.is_fused};
  const int idle = options_of_ranks.ps.servers;
  Ended ended{std::vector<ExitCode>(fault.ranks, ExitCode::done), std::vector<std::string>(fault.ranks), ""};
  std::mutex mutex;
  comm::run_ranks(fault.ranks,
                  [&](comm::ProcessGroup& group) {
                    data::Loader loader(patterns,
                                        {.batch = 10, .rank = group.rank(), .size = group.size() - idle, .idle = idle});
                    FaultyTask task(recipe, fault, group);
                    parallel::Mesh mesh(strategy.mesh(group.size(), options_of_ranks), group);
                    SupervisedStep step(task,
                                        {.accumulate = fault.accumulate,
                                         .num_classes = 11,
                                         .strategy = &strategy,
                                         .strategy_options = options_of_ranks},
                                        mesh);
                    TrainerOptions options;
                    options.steps = 12;
                    options.schedule = {.kind = ScheduleKind::constant, .lr = 0.05, .steps = 12, .warmup = 0};
                    options.checkpoint_every = 2;
                    Trainer trainer(step, loader, nullptr, options, &store, group);
                    Observer nobody;
                    try {
                      trainer.run(nobody);
                    } catch (const NonFiniteError& error) {
                      const std::lock_guard lock(mutex);
                      ended.codes[group.rank()] = exit_code_of(error);
                      ended.texts[group.rank()] = message_of(error);
                      ended.parameter = task.parameters()[fault.parameter].name;
                    }
                  },
                  {.threads = 1});
  return ended;
}

/// Loads the newest checkpoint in the folder, of one rank, and looks at all its numbers.
void expect_finite(const CheckpointStore& store, const FaultPoint& fault) {
  ASSERT_FALSE(store.list().empty());
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    ClassifierTask task({}, group);
    parallel::Mesh mesh({.data = group.size()}, group);
    SupervisedStep step(task, {.num_classes = 11}, mesh);
    TrainingState state;
    state.tensors = step.state();
    const auto restored = load_checkpoint(store, state, std::nullopt, group);
    ASSERT_TRUE(restored);
    EXPECT_EQ(restored->step, store.list().front());
    EXPECT_LT(restored->step, fault.step);
    for (const auto& tensor : state.tensors) EXPECT_TRUE(all_finite(tensor.tensor.detach())) << tensor.name;
  });
}

TEST(FaultPoint, TheFortyHoldEachKind) {
  std::map<std::string, int> kinds;
  for (int n = 0; n < kRuns; ++n) {
    const auto fault = fault_point(n);
    const bool is_head = fault.parameter == kOfBackbone;
    ++kinds[is_head ? (fault.is_fused ? "fused head" : "head") : (fault.is_fused ? "beside a fused head" : "backbone")];
    ++kinds["ranks " + std::to_string(fault.ranks)];
    ++kinds["micro-batches " + std::to_string(fault.accumulate)];
  }
  for (const auto& [kind, runs] : kinds) EXPECT_GE(runs, 3) << kind;
  EXPECT_EQ(kinds.size(), 4U + 4U + 3U);
}

TEST(FaultPoint, ANanInOneGradientOfOneRankEndsAllRanksWithAFiniteCheckpoint) {
  for (const auto& strategy : parallel::strategies()) {
    int good = 0;
    for (int n = 0; n < kRuns; ++n) {
      const auto drawn = fault_point(n), fault = in_world(drawn, strategy);
      SCOPED_TRACE(std::string(strategy.name) + " run " + std::to_string(n) + " ranks " + std::to_string(fault.ranks) +
                   " step " + std::to_string(fault.step) + " parameter " + std::to_string(fault.parameter));
      const test::TemporaryFolder folder;
      CheckpointStore store(folder.path(), 100);
      parallel::StrategyOptions options;
      options.dp.replicas = drawn.ranks;
      const auto ended = run(fault, strategy, options, store);
      const auto told =
          "gradient of '" + ended.parameter + "' in step " + std::to_string(fault.step) + " is not finite";
      bool is_good = true;
      for (int rank = 0; rank < fault.ranks; ++rank) {
        EXPECT_EQ(ended.codes[rank], ExitCode::non_finite);
        EXPECT_EQ(ended.texts[rank].find(told), 0u) << ended.texts[rank];
        is_good &= ended.codes[rank] == ExitCode::non_finite && ended.texts[rank].starts_with(told);
      }
      expect_finite(store, fault);
      good += is_good ? 1 : 0;
    }
    EXPECT_EQ(good, kRuns) << strategy.name;
  }
}

/// Only the server of the number sees the NaN in time, or one of two: all must leave their steps in one order.
TEST(FaultPoint, ANanThatSomeStaleServersAloneSeeEndsAllRanks) {
  for (const int servers : {0, 1, 2}) {
    for (const int64_t staleness : {1, 2, 3}) {
      for (const int64_t step : {4, 9, 12}) {
        const FaultPoint fault = {.ranks = 2 + servers, .rank = 1, .step = step, .parameter = 2, .is_whole = true};
        SCOPED_TRACE(std::to_string(servers) + " servers, s " + std::to_string(staleness) + " step " +
                     std::to_string(step));
        const test::TemporaryFolder folder;
        CheckpointStore store(folder.path(), 100);
        parallel::StrategyOptions options;
        options.ps = {.servers = servers, .servers_update = true, .staleness = staleness};
        const auto ended = run(fault, parallel::strategy_of("ps"), options, store);
        for (int rank = 0; rank < fault.ranks; ++rank) {
          EXPECT_EQ(ended.codes[rank], ExitCode::non_finite) << rank;
          EXPECT_EQ(ended.texts[rank], ended.texts[0]);
        }
        EXPECT_NE(ended.texts[0].find("is not finite"), std::string::npos) << ended.texts[0];
        expect_finite(store, fault);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::train
