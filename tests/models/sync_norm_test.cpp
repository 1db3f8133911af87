#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <numeric>

#include "tandem/base/rng.h"
#include "tandem/base/tangent.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/memory/recompute.h"
#include "tandem/models/backbone.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tandem/parallel/statistics_exchange.h"

// Backbones whose normalisation has the statistics of all ranks.
namespace tandem::models {
namespace {

constexpr int64_t kImages = 7, kSize = 16, kEmbedding = 16;

Tensor random(const std::vector<int64_t>& shape, uint64_t stream, at::ScalarType type) {
  const auto values = at::empty(shape, at::kDouble);
  fill_normal_(values, 1.0, 37, stream);
  return values.to(type);
}

ModelOptions options_of(Norm norm) {
  return {.name = "resnet_glyph", .channels = 1, .size = kSize, .embedding = kEmbedding, .norm = norm};
}

using Forward = std::function<Tensor(const memory::Chain&, const Tensor&)>;

Tensor run_plain(const memory::Chain& chain, const Tensor& images) { return memory::run(chain, images); }

/// Each block a region, all of them in one more.
Tensor run_recomputed(const memory::Chain& chain, const Tensor& images) {
  return memory::recompute(
      [&](const Tensor& all) {
        memory::Flow flow = {all};
        for (const auto& block : chain.blocks) {
          flow = memory::recompute(block.forward, flow, {.modules = block.modules});
        }
        return flow[0];
      },
      images);
}

/// Features, then gradients of the parameters, then buffers, after `steps` steps of descent.
std::vector<Tensor> train(Backbone& model, const Tensor& images, const Tensor& factor, const Forward& forward,
                          parallel::GradientSync* sync, int steps) {
  Tensor features;
  for (int step = 0; step < steps; ++step) {
    for (auto& weight : model.parameters()) weight.mutable_grad().reset();
    features = forward(model.chain(), images);
    const auto loss = (features * factor).sum();
    if (sync != nullptr) sync->before_backward(loss);
    loss.backward();
    const at::NoGradGuard no_grad;
    for (auto& weight : model.parameters()) weight.sub_(weight.grad(), 1e-3);
  }
  std::vector<Tensor> all = {features.detach()};
  for (const auto& weight : model.parameters()) all.push_back(weight.grad());
  for (const auto& buffer : model.buffers()) all.push_back(buffer);
  return all;
}

void expect_near(const std::vector<Tensor>& own, const std::vector<Tensor>& expected, double tolerance) {
  ASSERT_EQ(own.size(), expected.size());
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].numel() == 0) continue;
    const auto from = own[i].to(at::kDouble), to = expected[i].to(at::kDouble);
    const double scale = std::max(1.0, to.abs().max().item<double>());
    EXPECT_LE((from - to).abs().max().item<double>(), tolerance * scale) << "tensor " << i;
  }
}

struct Case {
  std::vector<int64_t> counts;  // images of each rank
  at::ScalarType type = at::kDouble;
  double tolerance = 1e-12;
  Forward forward = run_plain;
  comm::Transport transport = comm::Transport::memory;
};

/// The ranks' training with data parallelism, in buckets that travel while backward runs.
void expect_one_device(const Case& c, int steps = 2) {
  SCOPED_TRACE(testing::Message() << c.type << " on ranks with " << c.counts);
  const auto images = random({kImages, 1, kSize, kSize}, 1, c.type), factor = random({kImages, kEmbedding}, 2, c.type);
  const auto whole_model = make(options_of(Norm::batch));
  whole_model->to(at::kDouble);
  auto whole = train(*whole_model, images.to(at::kDouble), factor.to(at::kDouble), run_plain, /*sync=*/nullptr, steps);
  comm::WorldOptions world;
  world.transport = c.transport;
  world.threads = 1;
  comm::run_ranks(
      static_cast<int>(c.counts.size()),
      [&](comm::ProcessGroup& group) {
        auto options = options_of(Norm::sync);
        options.ranks = parallel::share_statistics(group);
        const auto model = make(options);
        model->to(c.type);
        parallel::DistributedDataParallel sync(*model, group, {.bucket_bytes = 4096, .first_bucket_bytes = 512});
        const auto first = std::accumulate(c.counts.begin(), c.counts.begin() + group.rank(), int64_t{0});
        const auto count = c.counts[static_cast<size_t>(group.rank())];
        const auto own =
            train(*model, images.narrow(0, first, count), factor.narrow(0, first, count), c.forward, &sync, steps);
        auto expected = whole;
        expected[0] = whole[0].narrow(0, first, count);
        expect_near(own, expected, c.tolerance);
      },
      world);
}

std::vector<std::vector<int64_t>> divisions() {
  std::vector<std::vector<int64_t>> all;
  for (int ranks = 1; ranks <= 5; ++ranks) all.push_back(comm::split_sizes(kImages, ranks));
  all.insert(all.end(), {{0, 7}, {7, 0}, {1, 0, 6}, {0, 0, 3, 4, 0}});
  return all;
}

TEST(SyncNorm, TrainsAsOneDeviceDoes) {
  for (const auto& counts : divisions()) expect_one_device({.counts = counts});
}

TEST(SyncNorm, TrainsAsOneDeviceDoesWhenRecomputed) {
  for (const auto& counts : divisions()) expect_one_device({.counts = counts, .forward = run_recomputed});
}

TEST(SyncNorm, TrainsAsOneDeviceDoesOverSockets) {
  for (const auto& forward : {Forward(run_plain), Forward(run_recomputed)}) {
    expect_one_device({.counts = {4, 0, 3}, .forward = forward, .transport = comm::Transport::sockets});
  }
}

// The fused kernels: ranks without images have none, and must exchange the same numbers.
TEST(SyncNorm, InFloat32StaysNearFloat64) {
  for (const auto& counts : divisions()) {
    for (const auto& forward : {Forward(run_plain), Forward(run_recomputed)}) {
      expect_one_device({.counts = counts, .type = at::kFloat, .tolerance = 1e-4, .forward = forward}, 1);
    }
  }
}

/// Of a network whose weights move along a direction, the gradient by the images of the loss's derivative.
Tensor product_of(Backbone& model, const Tensor& images, const Tensor& factor, const Forward& forward) {
  std::vector<Tensor> weights = model.parameters(), along;
  for (auto& weight : weights) along.push_back(random(weight.sizes().vec(), 50 + along.size(), weight.scalar_type()));
  for (auto& weight : weights) weight.requires_grad_(false);
  const auto leaf = images.clone().requires_grad_();
  const TangentScope tangents(weights, along);
  const auto tangent = tangent_of((forward(model.chain(), leaf) * factor).sum());
  const c10::AutoFwGradMode no_tangents(false);
  return torch::autograd::grad({tangent}, {leaf})[0];
}

TEST(SyncNorm, HasTheSecondDerivativesOfOneDevice) {
  const auto options = [](Norm norm) {
    return ModelOptions{
        .name = "darts-v2", .channels = 2, .size = 8, .embedding = 0, .norm = norm, .cells = 3, .cell_channels = 4};
  };
  const auto images = random({kImages, 2, 8, 8}, 1, at::kDouble), factor = random({kImages, 64}, 2, at::kDouble);
  const auto whole_model = make(options(Norm::batch));
  whole_model->to(at::kDouble);
  const auto whole = product_of(*whole_model, images, factor, run_plain);
  for (const auto& counts : divisions()) {
    if (std::ranges::count(counts, 0) > 0) continue;  // torch's tangents of convolutions of no images
    for (const auto& forward : {Forward(run_plain), Forward(run_recomputed)}) {
      comm::run_ranks(static_cast<int>(counts.size()), [&](comm::ProcessGroup& group) {
        auto own_options = options(Norm::sync);
        own_options.ranks = parallel::share_statistics(group);
        const auto model = make(own_options);
        model->to(at::kDouble);
        const auto first = std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
        const auto count = counts[static_cast<size_t>(group.rank())];
        const auto own = product_of(*model, images.narrow(0, first, count), factor.narrow(0, first, count), forward);
        expect_near({own}, {whole.narrow(0, first, count)}, 1e-11);
      });
    }
  }
}

TEST(SyncNorm, ARecomputedStepHasTheSameBits) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      const auto ranks = parallel::share_statistics(group);
      const auto after = [&](const Forward& forward) {
        auto options = options_of(Norm::sync);
        options.ranks = ranks;
        const auto model = make(options);
        model->to(type);
        const auto [begin, end] = comm::split_range(kImages, 3, group.rank());
        return train(*model, random({kImages, 1, kSize, kSize}, 1, type).slice(0, begin, end),
                     random({kImages, kEmbedding}, 2, type).slice(0, begin, end), forward, nullptr, 3);
      };
      const auto plain = after(run_plain), recomputed = after(run_recomputed);
      for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].equal(recomputed[i])) << "tensor " << i;
    });
  }
}

TEST(SyncNorm, WorksInBfloat16) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    auto options = options_of(Norm::sync);
    options.products = at::kBFloat16;
    options.ranks = parallel::share_statistics(group);
    const auto model = make(options);
    options.norm = Norm::batch;
    const auto alone = make(options);
    const auto images = random({kImages, 1, kSize, kSize}, 1, at::kFloat);
    const auto [begin, end] = comm::split_range(kImages, 2, group.rank());
    const auto own = model->forward(images.slice(0, begin, end)), whole = alone->forward(images).slice(0, begin, end);
    EXPECT_EQ(own.scalar_type(), whole.scalar_type());
    EXPECT_LE((own - whole).abs().max().item<double>(), 0.1);
    own.sum().backward();
    for (const auto& weight : model->parameters()) EXPECT_TRUE(weight.grad().isfinite().all().item<bool>());
  });
}

TEST(SyncNorm, EvaluationUsesTheRunningStatisticsAndWaitsForNobody) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    auto options = options_of(Norm::sync);
    options.ranks = parallel::share_statistics(group);
    const auto model = make(options), alone = make(options_of(Norm::batch));
    model->eval();
    alone->eval();
    const auto images = random({kImages, 1, kSize, kSize}, 1, at::kFloat);
    const at::NoGradGuard no_grad;
    if (group.rank() == 1) {
      EXPECT_TRUE(model->forward(images).equal(alone->forward(images)));
    }
  });
}

TEST(SyncNorm, OnOneRankIsBatchNormalisation) {
  const auto images = random({kImages, 1, kSize, kSize}, 1, at::kFloat);
  EXPECT_TRUE(make(options_of(Norm::sync))->forward(images).equal(make(options_of(Norm::batch))->forward(images)));
}

}  // namespace
}  // namespace tandem::models
