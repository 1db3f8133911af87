#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tandem/comm/world.h"
#include "tests/train/small_task.h"

// Parameters that require no gradient when the step is made.
namespace tandem::train {
namespace {

struct Trained {
  Tensor w, v;
  std::vector<std::string> names;  // of the state
  int64_t fault = -1;              // what the step of a spoilt gradient says
};

/// Four steps of rank 0 with `w` frozen or not. `spoils`: the gradient of v is infinite in the last of them.
Trained train(int ranks, const parallel::Strategy& strategy, bool freezes, bool spoils = false) {
  Trained trained;
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    SmallTask task(group);
    const auto w = task.w().detach().clone();
    if (freezes) task.w().requires_grad_(false);
    task.change = [&](int64_t step) {
      SmallTask::Step change;
      if (spoils && step == 4) change.gradient_of_v = std::numeric_limits<double>::infinity();
      return change;
    };
    parallel::Mesh mesh(strategy.mesh(ranks, {}), group);
    SupervisedStep step(task, {.clip = 0.5, .num_classes = 2, .strategy = &strategy}, mesh);
    const SmallData data;
    data::Loader loader(data, {.batch = 4, .rank = group.rank(), .size = group.size()});
    loader.start(0);
    data::Batch batch;
    std::optional<int64_t> fault;
    for (int64_t i = 0; loader.next(batch); ++i) fault = step.run(batch, i, 0.1)->fault;
    step.unify();
    EXPECT_EQ(freezes, task.w().equal(w));
    EXPECT_FALSE(freezes && task.w().grad().defined());
    if (group.rank() != 0) return;
    trained = {task.w().detach().clone(), task.v().detach().clone(), {}, fault.value_or(-1)};
    for (const auto& tensor : step.state()) trained.names.push_back(tensor.name);
  });
  return trained;
}

TEST(Frozen, KeepItsBitsAndHaveNoState) {
  for (const auto& strategy : parallel::strategies()) {
    const auto alone = train(1, strategy, true), free = train(1, strategy, false);
    // Clipping counts one norm less; where ranks train apart, what is split is clipped alone.
    EXPECT_EQ(alone.v.equal(free.v), !strategy.is_synchronous);
    EXPECT_EQ(std::ranges::count(alone.names, "w"), 1) << "checkpoints hold it";
    EXPECT_EQ(std::ranges::count(alone.names, "optimizer.momentum_buffer.w"), 0);
    EXPECT_EQ(std::ranges::count(alone.names, "optimizer.momentum_buffer.v"), 1);
    EXPECT_EQ(std::ranges::count(free.names, "optimizer.momentum_buffer.w"), 1);
    for (const int ranks : {2, 3}) {
      if (strategy.is_one_process) continue;  // a world of one rank
      const auto several = train(ranks, strategy, true);
      EXPECT_TRUE(at::allclose(several.v, alone.v.narrow(0, 0, several.v.size(0)), 1e-6, 1e-6)) << strategy.name;
      EXPECT_EQ(several.names, alone.names);
    }
  }
}

TEST(Frozen, AFaultStillNamesItsParameter) {
  const auto spoilt = train(1, parallel::strategies().front(), true, true);
  ASSERT_GE(spoilt.fault, 0);
  EXPECT_EQ(spoilt.names[static_cast<size_t>(spoilt.fault)], "v");
}

}  // namespace
}  // namespace tandem::train
