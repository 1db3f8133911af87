#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/checkpoint_reader.h"
#include "tandem/train/reshard.h"
#include "tandem/train/supervised_step.h"
#include "tandem/train/weights_file.h"
#include "tandem/train/weights_hash.h"
#include "tests/support/files.h"
#include "tests/train/placed_model.h"
#include "tests/train/split_task.h"

// Steps on meshes of two axes, for a task whose layers are split along one of them.
namespace tandem::train {
namespace {

using parallel::Mesh;
using parallel::MeshSizes;

constexpr int64_t kBatch = 13, kSteps = 6;
constexpr double kRate = 0.2, kClose = 1e-12;

struct Plan {
  MeshSizes sizes;
  std::string parallel = "ddp";
  int64_t accumulate = 1;
};

std::string text_of(const Plan& plan) { return plan.parallel + " on " + name_of(plan.sizes); }

SupervisedStepOptions options_of(const Plan& plan, SplitTask& task) {
  return {.optimizer = {.kind = OptimizerKind::adamw},
          .clip = 0.7,
          .accumulate = plan.accumulate,
          .num_classes = 3,
          .strategy = &parallel::strategy_of(plan.parallel),
          .strategy_options = {.fsdp = {.shard = plan.sizes.shard}},
          .passes = plan.sizes.pipeline > 1 ? two_stages(task) : nullptr};
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> state;  // with one rank
  std::string hash;                     // of the whole state
};

/// Trains, and calls `see` on each rank at the end, after a unify().
Trained train(const Plan& plan, const std::function<void(SupervisedStep&, Mesh&)>& see = {}) {
  Trained trained;
  std::mutex mutex;
  comm::run_ranks(ranks_of(plan.sizes), [&](comm::ProcessGroup& world) {
    Mesh mesh(plan.sizes, world);
    SplitTask task(mesh);
    SupervisedStep step(task, options_of(plan, task), mesh);
    std::vector<double> losses;
    for (int64_t i = 0; i < kSteps; ++i) losses.push_back(*step.run(task.batch(i, kBatch), i, kRate)->loss);
    step.unify();
    const auto hash = weights_hash(step.state(), world);
    if (see) see(step, mesh);
    const std::lock_guard lock(mutex);
    if (world.rank() > 0) return;
    trained.losses = losses;
    trained.hash = hash;
    for (const auto& [name, tensor, placement] : step.state()) trained.state[name] = tensor.detach().clone();
  });
  return trained;
}

/// The parts of all ranks are those of one rank's tensors, and together they are the whole.
void expect_state_of_one(const Trained& one, const std::vector<Parameter>& state, Mesh& mesh, const Plan& plan) {
  const auto what = text_of(plan);
  double numbers = 0, wanted = 0;
  for (const auto& [name, tensor, placement] : state) {
    const auto& whole = one.state.at(name);
    const auto expected = view_of(whole, whole_box(whole.sizes()), placement.box(tensor.sizes()));
    const bool is_moved_by_parts = name == "column.seen" && plan.accumulate > 1;  // by each micro-batch
    EXPECT_TRUE(is_moved_by_parts || tensor.detach().allclose(expected, 0, kClose)) << name << ": " << what;
    if (placement.counts_on(mesh.world().rank())) numbers += static_cast<double>(tensor.numel());
  }
  for (const auto& [name, tensor] : one.state) wanted += static_cast<double>(tensor.numel());
  EXPECT_EQ(comm::all_reduce(at::full({1}, numbers, at::kDouble), mesh.world()).item<double>(), wanted) << what;
}

const std::vector<Plan> kPlans = {
    {{.tensor = 2}},
    {{.data = 2, .tensor = 2}},
    {{.data = 2, .tensor = 2}, "ddp", 3},
    {{.data = 2, .tensor = 3}, "ps"},
    {{.shard = 2, .tensor = 2}, "fsdp"},
    {{.shard = 2, .tensor = 2}, "fsdp", 2},
    {{.shard = 3, .tensor = 2}, "zero1"},
    {{.shard = 2, .tensor = 2}, "zero2"},
    {{.data = 2, .shard = 2, .tensor = 2}, "fsdp"},
    {{.pipeline = 2}},
    {{.data = 2, .pipeline = 2}},
    {{.shard = 2, .pipeline = 2}, "zero1"},
    {{.shard = 2, .pipeline = 2}, "fsdp"},
    {{.data = 2, .tensor = 2, .pipeline = 2}},
};

TEST(MeshStep, EveryPlanIsOneDevice) {
  const auto one = train({});
  for (const auto& plan : kPlans) {
    const auto several =
        train(plan, [&](SupervisedStep& step, Mesh& mesh) { expect_state_of_one(one, step.state(), mesh, plan); });
    for (size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(several.losses[i], one.losses[i], kClose) << text_of(plan);
  }
}

/// From one mesh to another, bit for bit.
TEST(MeshStep, EveryPlanReadsWhatAnotherWrote) {
  for (const auto& written : {kPlans[1], kPlans[4], kPlans[10], kPlans[12]}) {
    const test::TemporaryFolder folder;
    CheckpointStore store(folder.path());
    const auto saved = train(written, [&](SupervisedStep& step, Mesh& mesh) {
      EXPECT_TRUE(save_checkpoint(store, 1, {.tensors = step.state(), .identity = {}, .trainer = {}}, mesh.world()));
    });
    for (const auto& read :
         std::vector<Plan>{{{}}, {{.data = 4}}, {{.tensor = 2}}, {{.shard = 2, .pipeline = 2}, "fsdp"}}) {
      comm::run_ranks(ranks_of(read.sizes), [&](comm::ProcessGroup& world) {
        Mesh mesh(read.sizes, world);
        SplitTask task(mesh);
        SupervisedStep step(task, options_of(read, task), mesh);
        EXPECT_TRUE(load_checkpoint(store, {.tensors = step.state(), .identity = {}, .trainer = {}}, {}, world));
        const auto hash = weights_hash(step.state(), world);
        if (world.rank() == 0) {
          EXPECT_EQ(hash, saved.hash) << text_of(written) << " to " << text_of(read);
        }
      });
    }
  }
}

/// What a rank holds at most in a step, before any has run: with imagined ranks beside it.
int64_t predicted_peak(const Plan& plan, int rank) {
  const memory::ProbeScope probe;
  const auto world = comm::make_rehearsal_group(rank, ranks_of(plan.sizes), comm::Transport::memory);
  Mesh mesh(plan.sizes, *world);
  SplitTask task(mesh);
  SupervisedStep step(task, options_of(plan, task), mesh);
  const auto batch = task.batch(0, kBatch);
  return step.rehearse(batch, probe.account()).account.peak_bytes();
}

TEST(MeshStep, EveryPlanHoldsWhatIsPredicted) {
  memory::install_meter();
  for (const auto& plan : kPlans) {
    std::vector<int64_t> measured(ranks_of(plan.sizes));
    comm::run_ranks(ranks_of(plan.sizes),
                    [&](comm::ProcessGroup& world) {
                      Mesh mesh(plan.sizes, world);
                      SplitTask task(mesh);
                      SupervisedStep step(task, options_of(plan, task), mesh);
                      const auto batch = task.batch(0, kBatch);
                      step.run(batch, 0, kRate);
                      step.settle();
                      memory::reset_peak(world.rank());
                      step.run(batch, 1, kRate);
                      step.settle();
                      measured[world.rank()] = memory::account(world.rank()).peak_bytes();
                    },
                    {.threads = 1});
    for (int rank = 0; rank < ranks_of(plan.sizes); ++rank) {
      const auto predicted = predicted_peak(plan, rank);
      EXPECT_GT(predicted, 1000);
      EXPECT_EQ(predicted, measured[rank]) << text_of(plan) << ", rank " << rank;
    }
  }
}

/// Rewritten for other ranks and merged, bit for bit.
TEST(MeshStep, FilesOfEveryPlanAreThoseOfOneRank) {
  for (const auto& plan : {kPlans[1], kPlans[4], kPlans[10], kPlans[13]}) {
    SCOPED_TRACE(text_of(plan));
    const test::TemporaryFolder folder;
    CheckpointStore store(folder / "written");
    std::map<std::string, Tensor> state;
    train(plan, [&](SupervisedStep& step, Mesh& mesh) {
      EXPECT_TRUE(save_checkpoint(store, 1, {.tensors = step.state(), .identity = {}, .trainer = {}}, mesh.world()));
    });
    comm::run_ranks(1, [&](comm::ProcessGroup& world) {
      Mesh mesh({}, world);
      SplitTask task(mesh);
      SupervisedStep step(task, options_of({}, task), mesh);
      EXPECT_TRUE(load_checkpoint(store, {.tensors = step.state(), .identity = {}, .trainer = {}}, {}, world));
      for (const auto& [name, tensor, placement] : step.state()) state[name] = tensor.detach().clone();
    });
    for (const int ranks : {1, 2, 4}) {
      CheckpointStore other(folder / std::to_string(ranks));
      reshard(CheckpointReader(store, 1), other, ranks,
              along_same_dim(ranks, [&](int64_t rows) { return comm::split_sizes(rows, ranks); }));
      const CheckpointReader rewritten(other, 1);
      for (const auto& [name, tensor] : state) EXPECT_TRUE(rewritten.read(name).equal(tensor)) << name;
    }
    merge_weights(CheckpointReader(store, 1), folder / "merged.safetensors");
    const auto merged = open_weights(folder / "merged.safetensors");
    for (const auto& name : {"column.weight", "column.seen", "row.weight", "row.bias"}) {
      EXPECT_TRUE(merged.read(name).equal(state.at(name))) << name;
    }
    EXPECT_EQ(merged.names().size(), 4U);
  }
}

}  // namespace
}  // namespace tandem::train
