#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/parallel/mesh.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/optimizer.h"
#include "tests/support/files.h"

// Optimizer state that is split over the ranks although every rank holds the weights: each rank updates its rows, and
// the rows are gathered. Placements are all that says so.
namespace tandem::train {
namespace {

using parallel::Axis;
using parallel::Mesh;

/// All its numbers are short binary fractions, so that no rounding depends on where a row lies in a vectorised loop.
constexpr OptimizerOptions kExactSgd = {.momentum = 0.5, .weight_decay = 0};
constexpr OptimizerOptions kAdam = {.kind = OptimizerKind::adamw};

/// Two weights; their gradients are a function of the step and of the weights.
class SplitOptimizer {
 public:
  SplitOptimizer(Mesh& mesh, const OptimizerOptions& options) : group_(mesh.group(Axis::data)) {
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{5, 3}, {1, 7, 2}}) {
      const auto name = "w" + std::to_string(weights_.size());
      const auto placement = mesh.place(sizes, {{.dim = 0, .axis = Axis::data}});
      weights_.push_back(at::arange(c10::multiply_integers(sizes), at::kDouble).reshape(sizes) / 8);
      own_.push_back(Parameter::placed(name, rows_of(weights_.back(), placement), placement));
    }
    optimizer_.emplace(own_, options);
  }

  void step(int64_t step) {
    for (size_t i = 0; i < own_.size(); ++i) {
      const auto gradient = at::remainder(weights_[i] * static_cast<double>(step + 3), 2) - 1;
      own_[i].tensor.mutable_grad() = rows_of(gradient, own_[i].placement).clone();
    }
    optimizer_->step(0.125);
    for (size_t i = 0; i < own_.size(); ++i) weights_[i].copy_(comm::all_gather(own_[i].tensor, group_));
  }

  TrainingState state() const {
    TrainingState state;
    for (size_t i = 0; i < own_.size(); ++i) {
      state.tensors.push_back(Parameter::replicated(own_[i].name, weights_[i]));
    }
    for (const auto& tensor : optimizer_->state()) state.tensors.push_back(tensor);
    return state;
  }

  const std::vector<Tensor>& weights() const { return weights_; }

 private:
  static Tensor rows_of(const Tensor& whole, const Placement& placement) {
    auto rows = whole;
    for (const auto& split : placement.splits) rows = rows.narrow(split.dim, split.first, split.count);
    return rows;
  }

  comm::ProcessGroup& group_;
  std::vector<Tensor> weights_;
  std::vector<Parameter> own_;  // views of the weights
  std::optional<Optimizer> optimizer_;
};

/// The weights after `steps` steps, the first of which may be a checkpoint of the store; saved at the end.
std::vector<Tensor> train(int ranks, int64_t steps, const OptimizerOptions& options, CheckpointStore& store) {
  std::vector<Tensor> weights;
  comm::run_ranks(ranks, [&](comm::ProcessGroup& world) {
    Mesh mesh({.data = ranks}, world);
    SplitOptimizer program(mesh, options);
    const auto restored = load_checkpoint(store, program.state(), {}, world);
    for (int64_t step = restored ? restored->step : 0; step < steps; ++step) program.step(step);
    EXPECT_TRUE(save_checkpoint(store, steps, program.state(), world));
    if (world.rank() == 0) weights = program.weights();
  });
  return weights;
}

TEST(SplitOptimizer, AnyRanksGoOnFromAnyOthersBitForBit) {
  const test::TemporaryFolder alone;
  CheckpointStore of_one(alone.path());
  const auto wanted = train(1, 9, kExactSgd, of_one);
  for (const int first : {1, 2, 3, 5}) {
    for (const int second : {1, 2, 4}) {
      const test::TemporaryFolder folder;
      CheckpointStore store(folder.path());
      train(first, 4, kExactSgd, store);
      const auto found = train(second, 9, kExactSgd, store);
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(found[i].equal(wanted[i])) << first << " -> " << second;
    }
  }
}

/// Each number of the state is stored once, under the names of a run that does not split it.
TEST(SplitOptimizer, ItsCheckpointHoldsTheTensorsOfOneRank) {
  const test::TemporaryFolder folder;
  std::vector<CheckpointStore> stores;
  for (const int ranks : {1, 3}) {
    stores.emplace_back(folder / std::to_string(ranks));
    train(ranks, 3, kAdam, stores.back());
  }
  const CheckpointReader one(stores[0], 3), three(stores[1], 3);
  EXPECT_EQ(one.names(), three.names());
  for (const auto& name : one.names()) EXPECT_TRUE(at::allclose(one.read(name), three.read(name), 1e-14)) << name;
  EXPECT_EQ(three.tensor("w0").parts.size(), 1u);
  EXPECT_EQ(three.tensor("optimizer.exp_avg.w0").parts.size(), 3u);
  EXPECT_EQ(three.tensor("optimizer.step.w0").parts.size(), 1u);
}

}  // namespace
}  // namespace tandem::train
