#include "tandem/parallel/parallel_apply.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <set>
#include <thread>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/scatter.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using test::text_of;

std::vector<Nested> parts_of(const Tensor& input, size_t replicas) {
  return scatter(input, std::vector<c10::Device>(replicas, c10::DeviceType::CPU));
}

Tensor joined(const std::vector<Nested>& parts) { return gather(parts, c10::DeviceType::CPU).tensor(); }

TEST(ReplicaThreads, EachReplicaHasItsThreadAndItsShareOfTheIntraOpThreads) {
  ReplicaThreads threads(2, 4);
  std::array<std::thread::id, 4> first, second;
  std::array<int, 4> intra_op{};
  threads.run(4, [&](int replica) {
    first[replica] = std::this_thread::get_id();
    intra_op[replica] = at::get_num_threads();
  });
  threads.run(4, [&](int replica) { second[replica] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second) << "the threads stay";
  EXPECT_TRUE(first[0] == first[2] && first[1] == first[3] && first[0] != first[1]);
  EXPECT_EQ(intra_op, (std::array<int, 4>{2, 2, 2, 2}));
  ReplicaThreads alone(1, 3);
  alone.run(2, [caller = std::this_thread::get_id()](int) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  EXPECT_EQ(text_of<c10::ValueError>([] { ReplicaThreads(0, 1); }),
            "replicas: threads are 0 and those of an operation 1, wanted 1 or more");
}

/// Else those that run operations would wait busily beside those that run replicas.
TEST(ReplicaThreads, OfOneThreadEachAreThoseThatRunTheCallersOperations) {
#ifndef _OPENMP
  GTEST_SKIP() << "not compiled for OpenMP";
#endif
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  ReplicaThreads threads(3, 3);
  std::array<std::thread::id, 5> first, second;
  std::array<std::thread::id, 3> of_operations;
  std::array<int, 5> intra_op{};
  threads.run(5, [&](int replica) {
    first[replica] = std::this_thread::get_id();
    intra_op[replica] = at::get_num_threads();
  });
  at::parallel_for(0, 3, 1, [&](int64_t begin, int64_t) { of_operations[begin] = std::this_thread::get_id(); });
  threads.run(5, [&](int replica) { second[replica] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second) << "the threads stay";
  EXPECT_EQ(first[0], std::this_thread::get_id());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i], of_operations[i % 3]) << i;
  EXPECT_EQ(intra_op, (std::array<int, 5>{1, 1, 1, 1, 1}));
  EXPECT_EQ(at::get_num_threads(), 3) << "the caller has its own again";
  at::set_num_threads(before);
}

TEST(ReplicaThreads, CarryContextAndGradientMode) {
  auto context = current_context();
  context.rank = 3, context.category = Category::buffers, context.step = 11;
  const ContextScope scope(context);
  ReplicaThreads threads(2, 2);
  const at::NoGradGuard no_grad;
  threads.run(2, [&](int replica) {
    EXPECT_EQ(current_context(), context);
    EXPECT_FALSE(at::GradMode::is_enabled());
    enter_block(7 + replica);
    EXPECT_EQ(current_context().block, 7 + replica) << "each has a scope of its own";
  });
  EXPECT_EQ(current_context(), context);
}

TEST(ReplicaThreads, FaultsHaveTheReplicasNumberAndTheirType) {
  ReplicaThreads threads(2, 2);
  const auto fail = [&](auto error) {
    threads.run(3, [&](int replica) {
      if (replica > 0) throw error;
    });
  };
  EXPECT_EQ(text_of<SettingsError>([&] { fail(SettingsError("a is 1", "raise a")); }),
            "a is 1 (replica 1 of 3): raise a");
  EXPECT_EQ(text_of<RankError>([&] { fail(std::logic_error("wrong")); }), "replica 1 of 3: wrong");
  EXPECT_NE(text_of<c10::ValueError>([&] {
              threads.run(2, [](int replica) { TORCH_CHECK_VALUE(replica == 0, "b is 2"); });
            }).find("replica 1 of 2"),
            std::string::npos);
  int runs = 0;
  threads.run(1, [&](int) { ++runs; });
  EXPECT_EQ(runs, 1) << "the threads go on after a fault";
}

/// Sums of terms that rounding makes depend on their order.
TEST(ParallelApply, GradientsAreSummedInTheOrderOfReplicas) {
#ifndef _OPENMP
  GTEST_SKIP() << "not compiled for OpenMP: the replicas run with another number of threads an operation";
#endif
  const auto weight = at::randn({64, 64}, at::make_generator<at::CPUGeneratorImpl>(1)).requires_grad_();
  const auto x = at::randn({40, 64}, at::make_generator<at::CPUGeneratorImpl>(2));
  const auto forward = [&](int, const Nested& part) -> Nested { return part.tensor().mm(weight).tanh(); };
  Tensor expected;
  for (const auto& part : parts_of(x, 4)) {
    const auto term = torch::autograd::grad({forward(0, part).tensor().sum()}, {weight})[0];
    expected = expected.defined() ? expected + term : term;
  }
  for (const int threads : {1, 2, 4}) {
    ReplicaThreads own(threads, threads);
    for (int run = 0; run < 10; ++run) {
      weight.mutable_grad().reset();
      joined(parallel_apply(forward, parts_of(x, 4), {{weight}}, own)).sum().backward();
      EXPECT_TRUE(weight.grad().equal(expected)) << threads << " threads";
    }
  }
}

TEST(ParallelApply, ValueAndGradientsEqualOneDevice) {
  const auto weight = at::randn({5, 5}, at::kDouble).requires_grad_(), unused = at::ones({2}).requires_grad_();
  const auto input = at::randn({7, 5}, at::kDouble).requires_grad_();
  const auto forward = [&](int, const Nested& part) -> Nested {
    const auto y = part.tensor().mm(weight).sigmoid();
    return Nested::List{y, y.detach(), y.mm(weight)};
  };
  const auto whole = forward(0, input);
  const auto loss_of = [](const Nested& value) { return (value[0].tensor() * value[2].tensor()).sum(); };
  loss_of(whole).backward();
  const auto of_weight = weight.grad().clone(), of_input = input.grad().clone();
  for (const int replicas : {1, 2, 3, 4}) {
    ReplicaThreads threads(std::min(replicas, 3), 3);
    weight.mutable_grad().reset(), input.mutable_grad().reset();
    const auto value =
        gather(parallel_apply(forward, parts_of(input, replicas), {{weight, unused}}, threads), c10::DeviceType::CPU);
    EXPECT_TRUE(value[1].tensor().allclose(whole[1].tensor(), 1e-14));
    EXPECT_FALSE(value[1].tensor().requires_grad());
    const auto loss = loss_of(value);
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(weight.grad().allclose(of_weight, 1e-13)) << replicas;
    EXPECT_TRUE(input.grad().allclose(of_input, 1e-13)) << replicas;
    EXPECT_FALSE(unused.grad().defined());
    loss.backward();
    EXPECT_TRUE(weight.grad().allclose(2 * of_weight, 1e-13)) << "the graph was kept";
    EXPECT_NE(text_of([&] { loss.backward(); }), "nothing thrown");
  }
}

TEST(ParallelApply, HooksOnAWeightRunOnceWithTheSum) {
  const auto weight = at::ones({3}, at::kDouble).requires_grad_();
  int runs = 0;
  weight.register_hook([&](const Tensor& gradient) { return ++runs, 10 * gradient; });
  ReplicaThreads threads(2, 2);
  const auto forward = [&](int, const Nested& part) -> Nested { return part.tensor() * weight; };
  joined(parallel_apply(forward, parts_of(at::ones({4, 3}, at::kDouble), 2), {{weight}}, threads)).sum().backward();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(weight.grad().equal(at::full({3}, 40, at::kDouble)));
  weight.mutable_grad().reset();
  (2 * weight).sum().backward();  // and plain graphs go where they went before
  EXPECT_TRUE(weight.grad().equal(at::full({3}, 20, at::kDouble)));
}

TEST(ParallelApply, RefusesSecondDerivativesAndTellsTheReplicaThatFailsInBackward) {
  const auto weight = at::ones({2}).requires_grad_();
  ReplicaThreads threads(2, 2);
  const auto forward = [&](int replica, const Nested& part) -> Nested {
    const auto y = part.tensor() * weight;
    y.register_hook([replica](const Tensor&) { TORCH_CHECK_VALUE(replica != 1, "too bad"); });
    return y;
  };
  const auto apply = [&] {
    return joined(parallel_apply(forward, parts_of(at::ones({4, 2}), 2), {{weight}}, threads));
  };
  EXPECT_NE(text_of<c10::ValueError>([&] { apply().sum().backward(); }).find("replica 1 of 2"), std::string::npos);
  EXPECT_NE(text_of<c10::NotImplementedError>([&] {
              apply().sum().backward({}, std::nullopt, /*create_graph=*/true);
            }).find("for second derivatives use one replica"),
            std::string::npos);
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              parallel_apply(forward, parts_of(at::ones({4, 2}), 2), {{weight}, {}}, threads);
            }),
            "replicas: one has 0 weights, and the first 1, wanted equal numbers");
}

/// With one thread the replicas' backwards follow each other: a term is freed as soon as it has been added.
TEST(ParallelApply, HoldsTwoTermsOfAGradientAtMost) {
  memory::install_meter();
  const auto weight = at::ones({1000}).requires_grad_();
  ReplicaThreads threads(1, 1);
  const auto x = at::ones({8, 1000});
  const auto forward = [&](int, const Nested& part) -> Nested { return part.tensor().mv(weight); };
  const auto loss = joined(parallel_apply(forward, parts_of(x, 8), {{weight}}, threads)).sum();
  const memory::ProbeScope probe;
  loss.backward();
  EXPECT_EQ(probe.account().at_peak[static_cast<size_t>(Category::gradients)], 2 * 4000);
  EXPECT_EQ(probe.account().live[static_cast<size_t>(Category::gradients)], 4000);
}

}  // namespace
}  // namespace tandem::parallel
