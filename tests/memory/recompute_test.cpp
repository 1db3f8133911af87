#include "tandem/memory/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include <thread>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/base/tangent.h"
#include "tests/memory/recompute_model.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

using torch::autograd::grad;

Cells part(const Cells& cells, size_t begin, size_t end) { return {cells.begin() + begin, cells.begin() + end}; }

/// Regions of `width` cells, each of regions of half as many, down to one cell.
Tensor run_nested(const Cells& cells, const Tensor& x, size_t width, const RecomputeOptions& options) {
  auto y = x;
  for (size_t begin = 0; begin < cells.size(); begin += width) {
    const auto inner = part(cells, begin, begin + width);
    auto own = options;
    own.modules.assign(inner.begin(), inner.end());
    own.restore_buffers = true;
    const auto forward = [=](const Tensor& input) {
      return width == 1 ? run_cells(inner, input) : run_nested(inner, input, width / 2, options);
    };
    y = recompute(forward, y, own);
  }
  return y;
}

Tensor random(at::IntArrayRef sizes, uint64_t stream = 1) {
  const auto values = at::empty(sizes, at::kDouble);
  fill_normal_(values, 1.0, 3, stream);
  return values;
}

Tensor random_leaf(at::IntArrayRef sizes, uint64_t stream = 1) { return random(sizes, stream).requires_grad_(); }

TEST(Recompute, FiveStepsOfTrainingHaveTheSameBits) {
  const auto plain = train(run_cells);
  for (const bool stop_early : {true, false}) {
    const RecomputeOptions options = {.values = ValueCheck::all, .stop_early = stop_early};
    EXPECT_TRUE(are_equal(
        plain, train([&](const Cells& cells, const Tensor& x) { return recompute_cells(cells, x, options); })));
    for (const size_t width : {1, 2, 4, 8}) {
      EXPECT_TRUE(are_equal(
          plain, train([&](const Cells& cells, const Tensor& x) { return run_nested(cells, x, width, options); })))
          << "width " << width;
    }
  }
}

TEST(Recompute, KeptResultsGiveTheSameBits) {
  const auto plain = train(run_cells);
  const RecomputeOptions options = {.values = ValueCheck::all, .keep = [](std::string_view operation) {
                                      return operation == "aten::addmm" || operation == "aten::native_batch_norm";
                                    }};
  for (const size_t width : {1, 4}) {
    const auto run = [&](const Cells& cells, const Tensor& x) { return run_nested(cells, x, width, options); };
    EXPECT_TRUE(are_equal(plain, train(run))) << "width " << width;
  }
}

TEST(Recompute, AGeneratorOfItsOwnIsRestored) {
  const auto own = [] { return at::detail::createCPUGenerator(9); };
  const auto plain = train(run_cells, own());
  const auto generator = own();
  EXPECT_TRUE(are_equal(
      plain,
      train([&](const Cells& cells, const Tensor& x) { return run_nested(cells, x, 4, {.generators = {generator}}); },
            generator)));
}

TEST(Recompute, ThreadRanksRecomputeAtTheSameTime) {
  const auto plain = train(run_cells, at::detail::createCPUGenerator(9));
  std::vector<std::thread> threads;
  std::array<bool, 3> same = {};
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const RankScope scope(rank);
      const auto generator = at::detail::createCPUGenerator(9);
      same[rank] =
          are_equal(plain, train([&](const Cells& cells,
                                     const Tensor& x) { return run_nested(cells, x, 4, {.generators = {generator}}); },
                                 generator));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(same, (std::array{true, true, true}));
}

/// A function of one tensor, run plainly and recomputed in several manners: the same for `use`.
void expect_same(const std::function<Tensor(const Tensor&)>& function,
                 const std::function<std::vector<Tensor>(const Tensor& x, const Tensor& y)>& use) {
  const auto x = random_leaf({4, 6});
  const auto plain = use(x, function(x));
  for (const bool stop_early : {true, false}) {
    const RecomputeOptions options = {.values = ValueCheck::all, .stop_early = stop_early};
    EXPECT_TRUE(are_equal(plain, use(x, recompute(function, x, options))));
    const auto nested = [&](const Tensor& input) { return recompute(function, input, options); };
    EXPECT_TRUE(are_equal(plain, use(x, recompute(nested, x, options))));
  }
}

Tensor smooth(const Tensor& x) { return (x.sin() * x.exp()).sigmoid().mm(x.t()).tanh(); }

TEST(Recompute, ARetainedGraphRunsBackwardTwice) {
  expect_same(smooth, [](const Tensor& x, const Tensor& y) {
    const auto first = grad({y.sum()}, {x}, {}, /*retain_graph=*/true);
    const auto second = grad({y.square().sum()}, {x});
    return std::vector{first[0], second[0]};
  });
}

TEST(Recompute, SecondAndThirdDerivativesAreThose) {
  expect_same(smooth, [](const Tensor& x, const Tensor& y) {
    const auto first = grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    const auto second = grad({first.square().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    const auto third = grad({second.sum()}, {x})[0];
    return std::vector{first.detach(), second.detach(), third};
  });
}

/// By x and the weight, the gradients of the derivative along a direction of the weight.
std::vector<Tensor> of_tangent(const std::function<Tensor(const torch::nn::Linear&, const Tensor&)>& run) {
  torch::nn::Linear linear(torch::nn::LinearOptions(4, 4));
  const auto x = random_leaf({3, 4}, 2);
  linear->to(at::kDouble);
  {
    const at::NoGradGuard no_grad;
    linear->weight.copy_(random({4, 4}, 3));
    linear->bias.copy_(random({4}, 4));
  }
  const TangentScope tangents({linear->weight}, {random({4, 4}, 5)});
  const auto tangent = tangent_of(run(linear, x).square().sum());
  const c10::AutoFwGradMode no_tangents(false);
  return grad({tangent}, {x, linear->weight, linear->bias});
}

Tensor squash_twice(torch::nn::Linear linear, const Tensor& x) { return linear(linear(x).tanh()).tanh(); }

TEST(Recompute, TangentsTravelThroughRegions) {
  const auto plain = of_tangent(squash_twice);
  const auto region = [](const torch::nn::Linear& linear, const Tensor& x) {
    const RecomputeOptions options{.modules = {linear.ptr()}};
    const auto inner = [=](const Tensor& y) {
      return recompute([=](const Tensor& z) { return squash_twice(linear, z); }, y, options);
    };
    return recompute([=](const Tensor& y) { return inner(y) + y; }, x, options) - x;
  };
  const auto again = of_tangent(region);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].allclose(again[i], 1e-12, 1e-14)) << i;
}

TEST(Recompute, WhereTangentsTravelModulesNameAllParameters) {
  const auto unnamed = [](const torch::nn::Linear& linear, const Tensor& x) {
    return recompute([=](const Tensor& y) { return squash_twice(linear, y); }, x);
  };
  EXPECT_EQ(test::text_of([&] { of_tangent(unnamed); }),
            "recompute: a parameter of [4, 4] is of no module that the options name, wanted all of them where tangents "
            "travel");
}

TEST(Recompute, BackwardRunsInParts) {
  const auto x = random_leaf({3}, 1), z = random_leaf({3}, 2);
  const std::function<Flow(const Flow&)> forward = [](const Flow& in) {
    return Flow{in[0].sin().exp(), in[1].cos().exp()};
  };
  const auto plain = forward({x, z}), again = recompute(forward, {x, z});
  for (const auto i : {1, 0}) {
    const auto& leaf = i == 0 ? x : z;
    EXPECT_TRUE(grad({plain[i].sum()}, {leaf})[0].equal(grad({again[i].sum()}, {leaf})[0]));
  }
}

TEST(Recompute, OutputsMayBeUnusedAndInputsPassedOn) {
  const auto x = random_leaf({3}, 1), z = random({3}, 2);
  const auto integers = at::arange(3);
  const std::function<Flow(const Flow&)> forward = [](const Flow& in) {
    return Flow{in[0].sin().exp(), in[0], in[1].exp() * in[0], in[2] + 1, Tensor()};
  };
  const auto run = [&](const Flow& out) {
    return std::vector{grad({(out[2] * out[1]).sum()}, {x})[0], out[0].detach(), out[1].detach(), out[3], out[4]};
  };
  const auto outputs = recompute(forward, {x, z, integers, Tensor()});
  EXPECT_TRUE(outputs[1].is_same(x));
  EXPECT_FALSE(outputs[3].requires_grad());
  EXPECT_TRUE(are_equal(run(forward({x, z, integers, Tensor()})), run(outputs)));
}

TEST(Recompute, CapturedTensorsGetTheirGradients) {
  const auto x = random_leaf({3}, 1), leaf = random_leaf({3}, 2);
  const auto use = [&](bool is_plain) {
    const auto captured = leaf.exp();
    const std::function<Tensor(const Tensor&)> forward = [captured](const Tensor& in) {
      return (in.sin() * captured).exp();
    };
    return grad({(is_plain ? forward(x) : recompute(forward, x)).sum()}, {x, leaf});
  };
  EXPECT_TRUE(are_equal(use(true), use(false)));
}

TEST(Recompute, WithoutGradientsItRunsForwardOnce) {
  int calls = 0;
  const auto forward = [&](const Tensor& x) {
    ++calls;
    return x.sin().exp();
  };
  const auto x = random_leaf({3});
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(recompute(forward, x).requires_grad());
  }
  EXPECT_FALSE(recompute(forward, x.detach()).requires_grad());
  EXPECT_EQ(calls, 2);
  recompute(forward, x).sum().backward();
  EXPECT_EQ(calls, 4);
}

struct Cube : torch::autograd::Function<Cube> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    const auto square = x * x;
    context->save_for_backward({x, square});
    return square * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto square = context->get_saved_variables()[1];
    return {gradients[0] * 3 * square + 0 * context->get_saved_variables()[0]};
  }
};

TEST(Recompute, FunctionsOfOnesOwnMayReadTheirSavedTensorsTwice) {
  expect_same([](const Tensor& x) { return Cube::apply(Cube::apply(x.sin()).exp()); },
              [](const Tensor& x, const Tensor& y) {
                const auto first = grad({y.sum()}, {x}, {}, true)[0];
                return std::vector{first, grad({y.sum()}, {x})[0]};
              });
}

TEST(Recompute, ViewsAndWritingInPlaceAreFineInside) {
  expect_same(
      [](const Tensor& x) {
        auto y = (x * 2).view({6, 4}).t();
        y.slice(0, 0, 2).relu_();
        y = y.clone();
        y.select(0, 1).mul_(3);
        return y.sigmoid_().mm(x.t());
      },
      [](const Tensor& x, const Tensor& y) {
        return std::vector{y.detach(), grad({y.square().sum()}, {x})[0]};
      });
}

TEST(Recompute, ForwardMayRunABackwardOfItsOwn) {
  expect_same(
      [](const Tensor& x) {
        const auto y = x.sin().exp();
        const auto slope = grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
        return (slope * y).tanh();
      },
      [](const Tensor& x, const Tensor& y) {
        return std::vector{y.detach(), grad({y.square().sum()}, {x})[0]};
      });
}

TEST(Recompute, TheContextIsThatOfForward) {
  std::vector<Context> seen;
  const auto forward = [&](const Tensor& x) {
    seen.push_back(current_context());
    const auto noise = at::empty_like(x);
    fill_normal_(noise, 1.0, current_context().seed, static_cast<uint64_t>(current_context().step));
    return (x.detach() * noise * x).exp();
  };
  const auto x = random_leaf({3});
  Tensor y;
  {
    const ContextScope scope({.rank = 2,
                              .category = Category::activations,
                              .phase = Phase::forward,
                              .block = block_number("layer7"),
                              .seed = 11,
                              .step = 12,
                              .first_sample = 13});
    y = recompute(forward, x, {.values = ValueCheck::all});
  }
  const PhaseScope backward(Phase::backward);
  y.sum().backward();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].statistics, BatchStatistics::hold);
  seen[1].statistics = seen[0].statistics;
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(current_context().phase, Phase::backward);
}

TEST(Recompute, AutocastIsThatOfForward) {
  const auto x = random_leaf({4, 6}, 1), weight = random({6, 6}, 2).to(at::kFloat).requires_grad_();
  const auto forward = [&](const Tensor& in) { return in.mm(weight).sin().mm(weight).exp(); };
  const auto run = [&](const std::function<Tensor()>& call) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto y = call();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    auto gradients = grad({y.to(at::kDouble).sum()}, {x, weight});
    gradients.push_back(y.detach());
    return gradients;
  };
  const auto plain = run([&] { return forward(x.to(at::kFloat)); });
  EXPECT_EQ(plain.back().scalar_type(), at::kBFloat16);
  const RecomputeOptions options = {.values = ValueCheck::all};
  EXPECT_TRUE(are_equal(plain, run([&] { return recompute(forward, x.to(at::kFloat), options); })));
}

TEST(Recompute, StopsAtTheLastTensorThatBackwardNeeds) {
  std::string calls;
  const auto forward = [&](const Tensor& x) {
    calls += "a";
    const auto y = x.sin();
    calls += "b";
    const auto z = y.exp();  // saves its result
    calls += "c";
    return z + 1;
  };
  const auto x = random_leaf({3});
  recompute(forward, x).sum().backward();
  EXPECT_EQ(calls, "abcab");
  recompute(forward, x, {.stop_early = false}).sum().backward();
  EXPECT_EQ(calls, "abcababcabc");
}

TEST(Recompute, AnExceptionLeavesNothingBehind) {
  int calls = 0;
  const auto forward = [&](const Tensor& x) {
    const auto y = x.sin().exp();
    if (++calls != 2) throw std::runtime_error("no");
    return y * x;
  };
  const auto x = random_leaf({3});
  EXPECT_THROW(recompute(forward, x), std::runtime_error);
  const auto y = recompute(forward, x, {.stop_early = false}).sum();
  EXPECT_EQ(test::text_of([&] { y.backward(); }), "no");
  int packs = calls;
  x.sin().exp().sum().backward();  // no hooks
  EXPECT_EQ(calls, packs);
}

TEST(Recompute, AForwardThatCatchesEverythingIsStoppedToo) {
  const auto forward = [](const Tensor& x) {
    try {
      return x.sin().exp() * x;
    } catch (...) {
      return x.cos() * x;
    }
  };
  const auto x = random_leaf({3});
  const auto plain = grad({forward(x).sum()}, {x})[0];
  EXPECT_TRUE(grad({recompute(forward, x).sum()}, {x})[0].equal(plain));
}

TEST(Recompute, AForwardAfterABackwardThatFailedIsFine) {
  const auto x = random_leaf({3});
  const auto y = recompute([](const Tensor& in) { return in.sin().exp(); }, x);
  y.register_hook([](const Tensor&) { throw std::runtime_error("hook"); });
  EXPECT_EQ(test::text_of([&] { y.sum().backward(); }), "hook");
  expect_same(smooth, [](const Tensor& in, const Tensor& out) { return grad({out.sum()}, {in}); });
}

}  // namespace
}  // namespace tandem::memory
