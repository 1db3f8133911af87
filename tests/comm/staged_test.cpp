#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tandem/comm/collectives.h"
#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/point_to_point.h"
#include "tests/comm/backends.h"
#include "tests/device/test_device.h"

// Tensors of a device that no backend reaches: each operator must give what it gives for CPU tensors.
namespace tandem::comm {
namespace {

class Staged : public test::OnBackends {
 protected:
  using Call = std::function<Tensor(const Tensor& x, ProcessGroup& group)>;

  /// On three ranks, of which rank r has r + 1 rows.
  static void expect_same(const Call& call) {
    test::install_test_device();
    on_ranks(3, [&](ProcessGroup& group) {
      const c10::Device device(at::kPrivateUse1, static_cast<c10::DeviceIndex>(group.rank()));
      const auto x = at::arange(1, 2 * group.rank() + 3, at::kFloat).view({-1, 2}).div_(3);
      const auto here = call(x, group), there = call(x.to(device), group);
      EXPECT_EQ(there.device(), device);
      EXPECT_TRUE(there.cpu().equal(here)) << "rank " << group.rank();
    });
  }
};

TEST_P(Staged, TensorsOfOneShape) {
  for (const auto op : {Reduce::sum, Reduce::mean, Reduce::max}) {
    expect_same([&](const Tensor& x, ProcessGroup& group) { return all_reduce(x[0], group, op); });
  }
  expect_same([](const Tensor& x, ProcessGroup& group) { return broadcast(x[0], 2, group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return reduce_sum(x[0], 1, group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return reduce_scatter(x[0].repeat({5, 1}), group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return all_to_all(x[0].repeat({5, 1}), group); });
}

TEST_P(Staged, TensorsOfSeveralShapes) {
  expect_same([](const Tensor& x, ProcessGroup& group) { return all_gather(x, group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return gather(x, 1, group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return scatter(x, 2, group); });
}

TEST_P(Staged, ACallThatEndsLater) {
  expect_same([](const Tensor& x, ProcessGroup& group) { return all_reduce_async(x[0], group).wait(); });
  expect_same([](const Tensor& x, ProcessGroup& group) {
    const auto own = x[0].clone();
    all_reduce_(own, group);
    return own;
  });
}

TEST_P(Staged, WhatLibtorchCalls) {
  expect_same([](const Tensor& x, ProcessGroup& group) {
    std::vector<Tensor> sum = {x[0].clone()};
    const auto future = group.calls().backend(x.device().type()).allreduce(sum)->getFuture();
    future->waitAndThrow();
    EXPECT_EQ(future->value().toTensorVector().at(0).device(), x.device());
    return sum[0];
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Staged, test::kTransports, test::backend_name);

}  // namespace
}  // namespace tandem::comm
