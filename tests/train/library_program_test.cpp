#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tandem/base/rng.h"
#include "tandem/classifier/class_sharded_head.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/models/backbone.h"
#include "tandem/models/model.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/optimizer.h"
#include "tests/support/files.h"

// The program that a user of the library writes (README, examples/train_glyphs.cpp): a replicated backbone, a head that
// is split over the ranks, clipping, a checkpoint.
namespace tandem::train {
namespace {

constexpr int64_t kClasses = 11, kBatch = 8, kSide = 8;  // 11 classes over 4 ranks: 3, 3, 3, 2

/// One rank of the program.
struct Program {
  explicit Program(comm::ProcessGroup& of_group, uint64_t seed = 1)
      : group(of_group),
        backbone(models::make({.name = "mlp", .size = kSide, .embedding = 16, .seed = seed})),
        head({.classes = kClasses, .dim = 16, .scoring = classifier::cosface(24, 0.2), .seed = seed}, group),
        replicas(*backbone, group),
        parameters(all_parameters()),
        optimizer(parameters, {.momentum = 0.9}) {}

  std::vector<Parameter> all_parameters() const {
    auto all = parameters_of(*backbone);
    all.push_back(head.parameter());
    return all;
  }

  void train(int steps) {
    const auto [begin, end] = comm::split_range(kBatch, group.size(), group.rank());
    for (int step = 0; step < steps; ++step) {
      auto images = at::empty({kBatch, 1, kSide, kSide});
      fill_normal_(images, 1.0, 3, step);
      const auto labels = (at::arange(kBatch) + step) % kClasses;
      optimizer.zero_grad();
      const auto loss = head.loss(backbone->forward(images.slice(0, begin, end)),
                                  labels.slice(0, begin, end).contiguous(), comm::split_sizes(kBatch, group.size()));
      replicas.before_backward(loss);
      loss.backward();
      clip_grad_norm(parameters, 0.5, group);
      optimizer.step(0.05);
    }
  }

  TrainingState state() const {
    TrainingState state;
    state.tensors = parameters;
    for (const auto& tensor : optimizer.state()) state.tensors.push_back(tensor);
    return state;
  }

  /// The head's rows of all ranks together.
  Tensor whole_head() { return comm::all_gather(parameters.back().tensor.detach(), group); }

  comm::ProcessGroup& group;
  std::shared_ptr<models::Backbone> backbone;
  classifier::ClassShardedHead head;
  parallel::DistributedDataParallel replicas;
  std::vector<Parameter> parameters;
  Optimizer optimizer;
};

/// The backbone and the whole head after a run of `ranks`.
std::vector<Tensor> trained(int ranks) {
  std::vector<Tensor> result;
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    Program program(group);
    program.train(5);
    auto tensors = program.backbone->parameters();
    tensors.push_back(program.whole_head());
    for (const auto& tensor : tensors) {
      if (group.rank() == 0) result.push_back(tensor.detach().clone());
    }
  });
  return result;
}

TEST(LibraryProgram, ClippedStepsAreThoseOfOneDevice) {
  const auto one = trained(1);
  for (const int ranks : {2, 3, 4}) {
    const auto several = trained(ranks);
    ASSERT_EQ(several.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_TRUE(at::allclose(several[i], one[i], 1e-3, 1e-5)) << "tensor " << i << ", ranks " << ranks;
    }
  }
}

TEST(LibraryProgram, ClippingKeepsReplicasEqualBitForBit) {
  comm::run_ranks(4, [](comm::ProcessGroup& group) {
    Program program(group);
    program.train(5);
    for (const auto& item : program.backbone->named_parameters()) {
      const auto of_rank_zero = comm::broadcast(item.value().detach(), 0, group);
      EXPECT_TRUE(item.value().equal(of_rank_zero)) << item.key() << " of rank " << group.rank();
    }
  });
}

TEST(LibraryProgram, ACheckpointOfFourRanksGivesEachRankItsRows) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder.path());
  Tensor saved;
  std::mutex mutex;
  comm::run_ranks(4, [&](comm::ProcessGroup& group) {
    Program program(group);
    program.train(3);
    EXPECT_TRUE(save_checkpoint(store, 3, program.state(), group));
    const auto whole = program.whole_head();
    const std::lock_guard lock(mutex);
    saved = whole;
  });
  for (const int ranks : {4, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      Program program(group, 2);  // other weights
      EXPECT_FALSE(program.whole_head().equal(saved));
      EXPECT_TRUE(load_checkpoint(store, program.state(), std::nullopt, group));
      EXPECT_TRUE(program.whole_head().equal(saved)) << "rank " << group.rank() << " of " << ranks;
    });
  }
}

}  // namespace
}  // namespace tandem::train
