#include "tandem/parallel/distributed_data_parallel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tandem/base/rng.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"

namespace tandem::parallel {
namespace {

Tensor filled(at::IntArrayRef shape, uint64_t stream) {
  const auto tensor = at::empty(shape, at::kDouble);
  fill_normal_(tensor, 1.0, 5, stream);
  return tensor;
}

/// Two layers and their oracle on one device.
struct TwoLayers {
  Tensor first = filled({4, 6}, 1).requires_grad_(), second = filled({3, 4}, 2).requires_grad_();
  Tensor loss(const Tensor& x, int64_t global_batch) const {
    return at::tanh(x.mm(first.t())).mm(second.t()).pow(2).sum() / global_batch;
  }
};

TEST(DistributedDataParallel, GradientsEqualOneDevice) {
  const auto x = filled({7, 6}, 3);  // 7 rows: uneven from 2 ranks up
  TwoLayers whole;
  whole.loss(x, 7).backward();
  for (const int world : {1, 2, 3, 4}) {
    for (const auto transport : {comm::Transport::memory, comm::Transport::segments, comm::Transport::sockets}) {
      comm::WorldOptions options;
      options.transport = transport;
      comm::run_ranks(
          world,
          [&](comm::ProcessGroup& group) {
            TwoLayers model;
            DistributedDataParallel replicas({model.first, model.second}, {}, {"first", "second"}, group,
                                             {.first_bucket_bytes = 64});
            const auto [begin, end] = comm::split_range(7, world, group.rank());
            for (int step = 0; step < 3; ++step) {  // the buckets are rebuilt after the first
              model.first.mutable_grad() = Tensor();
              model.second.mutable_grad() = Tensor();
              const auto loss = model.loss(x.slice(0, begin, end), 7);
              replicas.before_backward(loss);
              loss.backward();
              EXPECT_TRUE(at::allclose(model.first.grad(), whole.first.grad(), 1e-12)) << "ranks: " << world;
              EXPECT_TRUE(at::allclose(model.second.grad(), whole.second.grad(), 1e-12)) << "ranks: " << world;
            }
          },
          options);
    }
  }
}

TEST(DistributedDataParallel, EveryRankStartsFromRankZero) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    auto weight = at::full({5}, group.rank() + 1.0).requires_grad_();
    auto mean = at::full({2}, group.rank() + 1.0);
    auto count = at::full({}, group.rank() + 1, at::kLong);
    DistributedDataParallel replicas({weight}, {mean, count}, {"weight"}, group);
    EXPECT_TRUE(weight.equal(at::ones({5})));
    EXPECT_TRUE(mean.equal(at::ones({2})));
    EXPECT_EQ(count.item<int64_t>(), 1);
    mean.fill_(group.rank() + 7.0);
    replicas.sync_buffers();
    EXPECT_TRUE(mean.equal(at::full({2}, 7.0)));
  });
}

/// x summed; its gradient is `sent`, which nobody else holds then.
struct Sender : torch::autograd::Function<Sender> {
  static inline const void* sent = nullptr;
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.sum(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    auto gradient = at::ones({1000});
    sent = gradient.const_data_ptr();
    return {std::move(gradient)};
  }
};

TEST(DistributedDataParallel, OneRankTakesGradientsWithoutACopy) {
  const auto group = comm::make_single_group();
  auto weight = at::ones({1000}).requires_grad_();
  DistributedDataParallel replicas({weight}, {}, {"weight"}, *group);
  const auto loss = Sender::apply(weight);
  replicas.before_backward(loss);
  loss.backward();
  EXPECT_EQ(weight.grad().const_data_ptr(), Sender::sent);
}

TEST(DistributedDataParallel, TheSumsAreToldWithTheCallersLine) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    auto weight = at::ones({3}).requires_grad_();
    DistributedDataParallel replicas({weight}, {}, {"weight"}, group);
    const auto loss = weight.sum();
    const auto line = std::to_string(__LINE__ + 1);
    replicas.before_backward(loss);
    loss.backward();
    const auto record = group.recorder().to_json("");
    EXPECT_NE(record.find("distributed_data_parallel_test.cpp:" + line), std::string::npos) << record;
  });
}

TEST(DistributedDataParallel, WireBytesAreTwoPartsOfTheGradients) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    auto weight = at::ones({1000}, at::kFloat).requires_grad_();
    DistributedDataParallel replicas({weight}, {}, {"weight"}, group);
    group.meter().reset();
    const auto loss = weight.sum();
    replicas.before_backward(loss);
    loss.backward();
    EXPECT_EQ(group.meter().counts().at("all_reduce").calls, 1);
    EXPECT_EQ(group.meter().counts().at("all_reduce").bytes, 4000);  // 2 (N - 1) / N of 4000 bytes
  });
}

TEST(DistributedDataParallel, MicroBatchesAddUpInTheBucketsAndAreSentOnce) {
  const auto x = filled({7, 6}, 3);
  TwoLayers whole;
  whole.loss(x, 7).backward();
  for (const int world : {1, 2, 3}) {
    comm::run_ranks(world, [&](comm::ProcessGroup& group) {
      TwoLayers model;
      DistributedDataParallel replicas({model.first, model.second}, {}, {"first", "second"}, group,
                                       {.first_bucket_bytes = 64});
      const auto [begin, end] = comm::split_range(7, world, group.rank());
      const auto rows = comm::split_sizes(end - begin, 3);
      for (int step = 0; step < 3; ++step) {
        model.first.mutable_grad() = model.second.mutable_grad() = Tensor();
        group.meter().reset();
        const void* where = nullptr;
        for (int64_t i = 0, at = begin; i < 3; at += rows[i++]) {
          replicas.before_forward({i, 3});
          const auto loss = model.loss(x.narrow(0, at, rows[i]), 7);
          replicas.before_backward(loss, {i, 3});
          loss.backward();
          if (i == 0) where = model.first.grad().const_data_ptr();
          if (i == 1 && world > 1) {
            EXPECT_TRUE(group.meter().counts().empty());
          }
        }
        EXPECT_EQ(model.first.grad().const_data_ptr(), where);  // one copy
        EXPECT_TRUE(at::allclose(model.first.grad(), whole.first.grad(), 1e-12)) << "ranks: " << world;
        EXPECT_TRUE(at::allclose(model.second.grad(), whole.second.grad(), 1e-12)) << "ranks: " << world;
        if (world > 1) {
          EXPECT_EQ(group.meter().counts().at("all_reduce").calls, 2);  // a bucket each
        }
      }
    });
  }
}

TEST(DistributedDataParallel, BuffersComeFromRankZeroBeforeEachStepIfAsked) {
  for (const bool asked : {false, true}) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      const auto mean = at::zeros({2}, at::kDouble);
      DistributedDataParallel replicas({at::ones({1}).requires_grad_()}, {mean}, {"weight"}, group,
                                       {.broadcast_buffers = asked});
      const double own = group.rank() + 1;
      mean.fill_(own);
      replicas.before_forward({0, 2});
      EXPECT_TRUE(mean.equal(at::full({2}, asked ? 1 : own, at::kDouble)));
      mean.fill_(own);
      replicas.before_forward({1, 2});  // of the same step
      EXPECT_TRUE(mean.equal(at::full({2}, own, at::kDouble)));
    });
  }
}

TEST(DistributedDataParallel, GradientsHaveMemoryOfTheirOwnIfAsked) {
  for (const bool is_view : {true, false}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const auto weight = at::ones({4}).requires_grad_();
      DistributedDataParallel replicas({weight}, {}, {"weight"}, group, {.gradient_as_bucket_view = is_view});
      EXPECT_EQ(replicas.memory().owned_gradients.size(), is_view ? 1U : 0U);
      std::vector<Tensor> gradients;  // of two steps
      for (int step = 0; step < 3; ++step) {
        replicas.zero_grad();
        const auto loss = (weight * (step + 1.0)).sum();
        replicas.before_backward(loss);
        loss.backward();
        EXPECT_TRUE(weight.grad().equal(at::full({4}, 2 * (step + 1.0))));
        if (step > 0) gradients.push_back(weight.grad());  // the buckets are rebuilt after the first step
      }
      EXPECT_EQ(gradients[0].is_alias_of(gradients[1]), is_view);
    });
  }
}

}  // namespace
}  // namespace tandem::parallel
