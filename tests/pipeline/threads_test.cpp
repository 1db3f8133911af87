#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>

#include "tandem/comm/world.h"
#include "tandem/memory/weight_work.h"
#include "tandem/pipeline/schedule.h"
#include "tests/pipeline/stages_model.h"

// Faults of others, as tests named after their threads.
namespace tandem::pipeline {
namespace {

/// A linear layer behind a cut of its input, in backward of two halves.
TEST(PyTorch170277, WeightGradientsBehindChunksAreRight) {
  const auto linear = std::make_shared<layers::Linear>(3, 2);
  linear->initialize(1, "linear");
  linear->to(at::kDouble);
  const auto x = at::sin(at::arange(24, at::kDouble)).view({4, 6});
  const auto forward = [&] {
    const auto parts = x.chunk(2, 1);
    return (linear->forward(parts[0]) * at::arange(8).view({4, 2})).sum() + linear->forward(parts[1]).pow(2).sum();
  };
  forward().backward();
  const auto expected = linear->named_parameters()["weight"].grad().clone();
  linear->zero_grad();
  const auto work = std::make_shared<memory::WeightWork>();
  {
    const memory::WeightWorkScope scope(work);
    forward().backward();
  }
  const auto weight = linear->named_parameters()["weight"];
  EXPECT_FALSE(weight.grad().defined() && weight.grad().abs().max().item<double>() > 0);
  work->run();
  EXPECT_TRUE(work->is_empty());
  EXPECT_TRUE(at::allclose(weight.grad(), expected, 1e-14, 1e-14));
}

/// With several micro-batches the gradients are their sum, and so are those of several steps without a reset.
TEST(Torchtitan1733, GradientsAreSumsNotAverages) {
  const std::vector<int64_t> rows = {2, 3, 1, 2};
  Model alone;
  train_alone(alone, rows);
  train_alone(alone, rows);
  for (const auto* name : {"gpipe", "1f1b", "zb-h1"}) {
    const auto program = make_program(schedule_of(name), {.ranks = 2, .micro_batches = 4});
    comm::run_ranks(2,
                    [&](comm::ProcessGroup& group) {
                      Model own;
                      Executor executor(program, group);
                      Whole stages(own, rows, executor.program().num_stages());
                      executor.run(stages);
                      executor.run(stages);
                      expect_gradients(own, alone, program.stages_of(group.rank()), stages.sizes, name);
                    },
                    {.threads = 1});
  }
}

/// Images whose sides change with the micro-batch: all of them train.
struct OddSizes : Whole {
  using Whole::Whole;

  static Tensor images(int64_t rows, int micro_batch) {
    const int64_t height = 3 + micro_batch % 3, width = 6 - micro_batch % 2;
    return at::cos(at::arange(rows * 2 * height * width, at::kDouble)).view({rows, 2, height, width});
  }
  Flow input(int micro_batch) override { return {images(rows[micro_batch], micro_batch)}; }
};

TEST(Automodel3530, EveryMicroBatchTrainsWhenShapesChange) {
  const std::vector<int64_t> rows = {2, 3, 1, 2};
  Model alone;
  for (int i = 0; i < 4; ++i) {
    Flow flow = {OddSizes::images(rows[i], i)};
    for (const auto& block : alone.blocks) flow = block.forward(flow);
    (loss_block().forward(flow)[0] * 0.5).backward();
  }
  for (const auto* name : {"1f1b", "interleaved", "zb-v"}) {
    const auto program = make_program(schedule_of(name), {.ranks = 2, .micro_batches = 4});
    comm::run_ranks(2,
                    [&](comm::ProcessGroup& group) {
                      Model own;
                      Executor executor(program, group);
                      OddSizes stages(own, rows, executor.program().num_stages());
                      executor.run(stages);
                      expect_gradients(own, alone, program.stages_of(group.rank()), stages.sizes, name);
                    },
                    {.threads = 1});
  }
}

/// Stages that note what their blocks are given, and how much of it lives at once.
struct NotedInputs : Whole {
  using Whole::Whole;

  memory::Chain chain(int stage, int micro_batch) override {
    auto chain = Whole::chain(stage, micro_batch);
    if (stage == 0) return chain;
    auto& first = chain.blocks.front().forward;
    first = [this, forward = first](const Flow& x) {
      EXPECT_TRUE(x[0].is_leaf());
      EXPECT_EQ(torch::autograd::impl::hooks(x[0]).size(), 0);
      seen.emplace_back(x[0].getIntrusivePtr());
      most = std::max(most, std::ranges::count_if(seen, [](const auto& one) { return one.use_count() > 0; }));
      return forward(x);
    };
    return chain;
  }

  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> seen;
  int64_t most = 0;
};

/// What comes from another rank is a new leaf each time, gone with its backward; nothing is added to a weight's node.
TEST(PyTorch185331, HooksDoNotPileUp) {
  const auto program = make_program(schedule_of("1f1b"), {.ranks = 2, .micro_batches = 4});
  comm::run_ranks(2,
                  [&](comm::ProcessGroup& group) {
                    Model own;
                    Executor executor(program, group);
                    NotedInputs stages(own, {2, 3, 1, 2}, executor.program().num_stages());
                    for (int step = 0; step < 5; ++step) {
                      own.zero_grad();
                      executor.run(stages);
                      for (const auto& one : stages.seen) EXPECT_EQ(one.use_count(), 0);
                      for (const auto& weight : own.parameters()) {
                        const auto node = torch::autograd::impl::grad_accumulator(weight);
                        EXPECT_EQ(node->pre_hooks().size() + node->post_hooks().size(), 0);
                      }
                    }
                  },
                  {.threads = 1});
}

/// The activations that live at once, of those that travelled, do not grow with the micro-batches.
TEST(PyTorch193903, SentActivationsGoWithTheirBackward) {
  for (const int micro_batches : {8, 64}) {
    const auto program = make_program(schedule_of("1f1b"), {.ranks = 3, .micro_batches = micro_batches});
    comm::run_ranks(3,
                    [&](comm::ProcessGroup& group) {
                      Model own;
                      Executor executor(program, group);
                      NotedInputs stages(own, std::vector<int64_t>(micro_batches, 2), 3);
                      executor.run(stages);
                      EXPECT_EQ(stages.most, group.rank() == 0 ? 0 : 3 - group.rank()) << micro_batches;
                    },
                    {.threads = 1});
  }
}

}  // namespace
}  // namespace tandem::pipeline
