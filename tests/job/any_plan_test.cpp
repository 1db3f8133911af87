#include <gtest/gtest.h>

#include "tandem/base/rng.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"

// Checkpoints under other plans than those that wrote them.
namespace tandem::job {
namespace {

const std::vector<Words> kPlans = {
    {"ranks=1"},
    {"ranks=3", "parallel=ddp"},
    {"ranks=4", "parallel=zero1", "mesh.shard=2"},
    {"ranks=3", "parallel=fsdp"},
    {"ranks=4", "parallel=fsdp", "mesh.tensor=2"},
    {"ranks=2", "parallel=tensor"},
    {"ranks=3", "parallel=pipeline", "head.over=pipeline"},
    {"ranks=2", "parallel=pipeline", "pipeline.schedule=v-half", "head.over=all"},
    {"ranks=4", "parallel=fsdp", "mesh.pipeline=2", "pipeline.schedule=zb-h1"},
    {"ranks=4", "parallel=zero2", "mesh.pipeline=2", "head.over=all"},
    {"ranks=4", "mesh.tensor=2", "mesh.pipeline=2", "head.over=pipeline", "pipeline.schedule=gpipe"},
    {"ranks=8", "parallel=fsdp", "mesh.tensor=2", "mesh.pipeline=2", "head.over=all", "pipeline.schedule=interleaved"},
};

/// Weights and all of the optimizer's state, bit for bit.
TEST(AnyPlan, GoesOnFromTheCheckpointOfAnyOther) {
  const Words job = {"model=resnet_glyph", "model.norm=none", "train.accumulate=4",    "train.batch=23",
                     "embedding=16",       "threads=1",       "train.optimizer=adamw", "train.lr=0.01"};
  CounterRng random(/*seed=*/7, /*stream=*/39);
  const auto count = static_cast<uint32_t>(kPlans.size());
  for (int pair = 0; pair < 10; ++pair) {
    const uint32_t from = random.next() % count, to = (from + 1 + random.next() % (count - 1)) % count;
    SCOPED_TRACE("from plan " + std::to_string(from) + " to " + std::to_string(to));
    const test::TemporaryFolder store;
    auto first = job, second = job;
    first.insert(first.end(), kPlans[from].begin(), kPlans[from].end());
    second.insert(second.end(), kPlans[to].begin(), kPlans[to].end());
    const auto saved = whole_run(first, 2, store.path()), opened = whole_run(second, 2, store.path());
    EXPECT_EQ(opened.hash, saved.hash);
    EXPECT_EQ(opened.state, saved.state);
    EXPECT_EQ(whole_run(second, 3, store.path()).losses.size(), 1) << "it goes on";
  }
}

}  // namespace
}  // namespace tandem::job
