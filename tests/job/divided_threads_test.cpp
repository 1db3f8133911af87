#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/region.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/layers/convolution.h"
#include "tandem/layers/linear.h"
#include "tandem/train/checkpoint_reader.h"
#include "tandem/train/checkpoint_store.h"
#include "tandem/train/reshard.h"
#include "tests/job/job_of.h"
#include "tests/support/files.h"

// Faults that others have met with divided layers, their norms and their checkpoints, each named after its thread.
namespace tandem::job {
namespace {

const DataShape kShape = {.classes = 7, .image = {1, 16, 16}};

data::Batch batch_of(int64_t samples, const comm::ProcessGroup& group) {
  const auto [begin, end] = comm::split_range(samples, group.size(), group.rank());
  data::Batch batch;
  batch.images = at::sin(at::arange(samples * 256, at::kFloat)).view({samples, 1, 16, 16}).slice(0, begin, end);
  batch.labels = at::arange(begin, end) % kShape.classes;
  batch.global_size = samples;
  batch.first_sample = begin;
  return batch;
}

using Weights = std::map<std::string, Tensor>;

/// Of a whole model, after a step on each of these batches.
Weights weights_after(const Words& words, const std::vector<int64_t>& batches) {
  Weights weights;
  const auto job = job_of(words);
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto parts = assemble(job, kShape, group);
    for (size_t i = 0; i < batches.size(); ++i)
      parts.step->run(batch_of(batches[i], group), static_cast<int64_t>(i), 0.1);
    for (const auto& weight : parts.step->weights()) weights[weight.name] = weight.tensor.detach().clone();
  });
  return weights;
}

void expect_weights(const Words& words, const std::vector<int64_t>& batches, const Weights& expected) {
  const auto job = job_of(words);
  comm::run_ranks(job.parallel.ranks, [&](comm::ProcessGroup& group) {
    const auto parts = assemble(job, kShape, group);
    for (size_t i = 0; i < batches.size(); ++i) {
      parts.step->run(batch_of(batches[i], parts.mesh->batch()), static_cast<int64_t>(i), 0.1);
    }
    for (const auto& weight : parts.step->weights()) {
      auto whole = expected.at(weight.name);
      for (const auto& split : weight.placement.splits) whole = whole.narrow(split.dim, split.first, split.count);
      EXPECT_TRUE(at::allclose(weight.tensor.to(at::kDouble), whole.to(at::kDouble), 1e-11, 1e-12)) << weight.name;
    }
  });
}

Words job_words(const Words& more) {
  return with({"model=resnet_glyph", "model.norm=none", "embedding=10", "head=softmax", "train.precision=float64",
               "train.batch=8", "threads=1"},
              more);
}

/// torchtitan 4245, 4332: the bias was added once a tensor rank, or its gradient was a part of it.
TEST(Torchtitan4245, TheBiasOfARowLinearIsAddedOnceAndItsGradientIsWhole) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    const layers::Division in(group, 7);
    for (const auto rows : {std::optional<int64_t>(), std::optional<int64_t>(0)}) {
      layers::RowLinear layer(in, 2, {.rows = rows});
      at::NoGradGuard no_grad;
      layer.named_parameters()["weight"].zero_();
      layer.named_parameters()["bias"].fill_(2);
      at::AutoGradMode grad(true);
      const auto y = layer.forward(at::ones({6, in.count()}));
      EXPECT_TRUE(y.detach().eq(2).all().item<bool>());
      y.sum().backward();
      EXPECT_TRUE(layer.named_parameters()["bias"].grad().eq(6).all().item<bool>()) << "of six rows, on each rank";
    }
  });
}

/// pytorch 191926, 194457: a convolution's backward lost a row of an uneven part.
TEST(PyTorch194457, UnevenPartsOfAConvolutionLoseNothing) {
  const layers::Conv2d::Options whole = {.in = 5, .out = 3, .kernel = 3, .padding = 1, .bias = true};
  const auto x = at::sin(at::arange(2 * 5 * 4 * 3, at::kDouble)).view({2, 5, 4, 3});
  const auto gradients = [&](layers::Conv2d& layer, const Tensor& input) {
    layer.initialize(1, "conv");
    layer.to(at::kDouble);
    const auto own = input.clone().requires_grad_();
    layer.forward(own).pow(2).sum().backward();
    return std::pair(own.grad(), layer.named_parameters()["weight"].grad());
  };
  layers::Conv2d alone(whole);
  const auto [dx, dw] = gradients(alone, x);
  comm::run_ranks(2, [&, dx = dx, dw = dw](comm::ProcessGroup& group) {
    const layers::Division in(group, 5), out(group, 3);
    layers::OutputConv2d by_outputs(whole, out);
    const auto of_outputs = gradients(by_outputs, x);
    EXPECT_TRUE(at::allclose(of_outputs.first, dx, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(of_outputs.second, dw.narrow(0, out.first(), out.count()), 1e-12, 1e-12));
    layers::InputConv2d by_inputs(whole, in, /*scatters=*/true);
    const auto of_inputs = gradients(by_inputs, x);
    EXPECT_TRUE(at::allclose(of_inputs.first, dx, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(of_inputs.second, dw.narrow(1, in.first(), in.count()), 1e-12, 1e-12));
  });
}

/// pytorch 190746: beside the loss, another log_softmax of the same scores had no gradient of its own.
TEST(PyTorch190746, EachLossOfGatheredScoresHasItsGradient) {
  const auto loss = [](const Tensor& scores) {
    const auto entropy = -(scores.softmax(1) * scores.log_softmax(1)).sum();
    return at::cross_entropy_loss(scores, at::arange(4)) + 0.3 * entropy + scores.log_softmax(0).pow(2).mean();
  };
  const auto all = at::sin(at::arange(20, at::kDouble)).view({4, 5}).requires_grad_();
  loss(all).backward();
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    const layers::Division classes(group, 5);
    const auto own = all.detach().narrow(1, classes.first(), classes.count()).clone().requires_grad_();
    loss(comm::gather_from_region(own, group, 1, classes.counts())).backward();
    EXPECT_TRUE(at::allclose(own.grad(), all.grad().narrow(1, classes.first(), classes.count()), 1e-12, 1e-12));
  });
}

/// Megatron-LM 7227, TransformerEngine (ROCm) 715: a weight that each tensor rank holds counted once a rank in the
/// norm.
TEST(Megatron7227, EachWeightCountsOnceInTheNormOfGradients) {
  const auto clipped = job_words({"train.clip=0.001"});
  const auto expected = weights_after(clipped, {8, 8});
  EXPECT_FALSE(at::allclose(weights_after(job_words({}), {8, 8}).at("conv1.weight"), expected.at("conv1.weight")))
      << "the norm is never above";
  expect_weights(with(clipped, {"ranks=2", "parallel=tensor"}), {8, 8}, expected);
  expect_weights(with(clipped, {"ranks=4", "parallel=fsdp", "mesh.tensor=2"}), {8, 8}, expected);
}

/// Automodel 3530: after a batch of another size only the last micro-batch trained.
TEST(Automodel3530, EachMicroBatchTrainsAfterABatchOfAnotherSize) {
  const auto words = job_words({"train.accumulate=3"});
  const auto expected = weights_after(job_words({}), {8, 5, 2, 8});
  expect_weights(with(words, {"ranks=2", "parallel=tensor"}), {8, 5, 2, 8}, expected);
  expect_weights(with(words, {"ranks=4", "parallel=ddp", "mesh.tensor=2"}), {8, 5, 2, 8}, expected);
}

/// transformers 48569: saving hung, because rank 0 alone gathered.
TEST(Transformers48569, SavingADividedModelEndsOnAllRanks) {
  const test::TemporaryFolder folder;
  const auto words = job_words({"ranks=3", "parallel=tensor"});
  train::CheckpointStore store(folder.path());
  const auto job = job_of(words);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto parts = assemble(job, kShape, group);
    parts.step->run(batch_of(8, parts.mesh->batch()), 0, 0.1);
    EXPECT_TRUE(save_checkpoint(store, 1, {.tensors = parts.step->state(), .identity = {}, .trainer = {}}, group));
  });
  EXPECT_NO_THROW(train::merge_weights(train::CheckpointReader(store, 1), folder / "whole.safetensors"));
}

}  // namespace
}  // namespace tandem::job
