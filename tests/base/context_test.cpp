#include "tandem/base/context.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <future>
#include <thread>

#include "tandem/base/tensor.h"
#include "tests/support/text_of.h"

namespace tandem {
namespace {

constexpr Context kNone = {};

Context in_thread() {
  Context seen;
  std::thread([&] { seen = current_context(); }).join();
  return seen;
}

TEST(Context, ScopesNestAndEnd) {
  EXPECT_EQ(current_context(), kNone);
  {
    const ContextScope all({.rank = 3, .seed = 7, .step = 5, .first_sample = 2});
    const CategoryScope category(Category::gradients);
    {
      const PhaseScope phase(Phase::optimizer);
      const Context wanted = {.rank = 3,
                              .category = Category::gradients,
                              .phase = Phase::optimizer,
                              .seed = 7,
                              .step = 5,
                              .first_sample = 2};
      EXPECT_EQ(current_context(), wanted);
    }
    EXPECT_EQ(current_context().phase, Phase::forward);
  }
  EXPECT_EQ(current_context(), kNone);
}

TEST(Context, ARankHasABound) {
  EXPECT_EQ(test::text_of<c10::IndexError>([] { RankScope(1024); }), "context: rank is 1024, wanted 0..1023");
  EXPECT_EQ(test::text_of<c10::IndexError>([] { RankScope(-1); }), "context: rank is -1, wanted 0..1023");
}

TEST(Context, ANewThreadHasThatOfItsProcess) {
  const RankScope scope(4);
  EXPECT_EQ(in_thread(), kNone);
  set_process_context({.rank = 2});
  EXPECT_EQ(in_thread().rank, 2);
  EXPECT_EQ(current_context().rank, 4);
  set_process_context({});
}

TEST(Context, ReachesThreadsOfLibtorch) {
  const RankScope scope(4);
  std::promise<int> seen;
  at::launch([&] { seen.set_value(current_context().rank); });
  EXPECT_EQ(seen.get_future().get(), 4);
}

/// Records the context of its backward.
struct Record : torch::autograd::Function<Record> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, int64_t seen) {
    context->saved_data["seen"] = seen;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    reinterpret_cast<std::vector<Context>*>(context->saved_data["seen"].toInt())->push_back(current_context());
    return {gradients[0], {}};
  }
};

Tensor recorded(const Tensor& x, std::vector<Context>& seen) {
  return Record::apply(x, reinterpret_cast<int64_t>(&seen));
}

TEST(Context, BackwardHasThatOfItsCaller) {
  std::vector<Context> seen;
  Tensor loss;
  {
    const RankScope forward(1);
    loss = recorded(at::ones({2}).requires_grad_(), seen).sum();
  }
  const ContextScope backward({.rank = 5, .phase = Phase::backward});
  loss.backward();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].rank, 5);
  EXPECT_EQ(seen[0].phase, Phase::backward);
}

TEST(Context, BackwardEntersOneBlockAfterTheOther) {
  std::vector<Context> seen;
  const int first = block_number("first"), second = block_number("second");
  EXPECT_NE(first, second);
  EXPECT_EQ(block_number("first"), first);
  EXPECT_EQ(block_name(second), "second");
  EXPECT_EQ(block_name(0), "");
  const auto x = at::ones({2}).requires_grad_();
  const auto y = recorded(recorded(x, seen), seen);
  y.register_hook([&](const Tensor&) { enter_block(first); });
  const auto z = recorded(y, seen);
  z.register_hook([&](const Tensor&) { enter_block(second); });
  {
    const PhaseScope backward(Phase::backward);
    z.sum().backward();
    EXPECT_EQ(current_context().block, first);
  }
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].block, second);
  EXPECT_EQ(seen[1].block, first);
  EXPECT_EQ(seen[2].block, first);
  EXPECT_EQ(current_context().block, 0);
  EXPECT_EQ(test::text_of<c10::IndexError>([] { block_name(-1); }).substr(0, 26), "block: number is -1, wante");
}

TEST(Context, IsHandedToThreadsThatLibtorchForgets) {
  const RankScope scope(6);
  const at::ThreadLocalState state;
  std::vector<int> seen(4, -2);
  at::set_num_threads(4);
  at::parallel_for(0, 4, 1, [&](int64_t begin, int64_t end) {
    const at::ThreadLocalStateGuard guard(state);
    for (int64_t i = begin; i < end; ++i) seen[i] = current_context().rank;
  });
  EXPECT_EQ(seen, (std::vector<int>{6, 6, 6, 6}));
}

}  // namespace
}  // namespace tandem
