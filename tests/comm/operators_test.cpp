#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>

#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/split.h"
#include "tests/comm/backends.h"
#include "tests/comm/operator_cases.h"
#include "tests/support/text_of.h"

// Every operator against the same function of all ranks' inputs on one device: value, gradient and gradient of the
// gradient, in float64.
namespace tandem::comm {
namespace {

using Tensors = std::vector<Tensor>;
using OnRank = std::function<Tensor(const Tensor& x, ProcessGroup& group)>;
using OnOneDevice = std::function<Tensors(const Tensors& xs)>;  // what each rank gets

class Operators : public test::OnBackends {};
INSTANTIATE_TEST_SUITE_P(Backends, Operators, test::kTransports, test::backend_name);

/// Some numbers, unlike for each rank and place; with ties between ranks where `tied`.
Tensor input_of(int rank, at::IntArrayRef shape, bool tied = false) {
  const auto numel = c10::multiply_integers(shape);
  const auto places = at::arange(numel, at::kDouble);
  const auto values = tied ? at::remainder(places * (rank + 1), 3) : at::sin(places * 1.7 + 3.1 * rank + 0.5);
  return values.reshape(shape);
}

/// Sum over all numbers of weight times cube, so that second derivatives are not constant.
Tensor loss_of(const Tensor& out, int rank) {
  const auto weight = at::cos(at::arange(out.numel(), at::kDouble) + rank).reshape(out.sizes());
  return (weight * out.pow(3)).sum();
}

struct Derivatives {
  Tensors values, first, second;
};

Derivatives on_one_device(const Tensors& inputs, const OnOneDevice& function) {
  Tensors xs;
  for (const auto& input : inputs) xs.push_back(input.clone().requires_grad_());
  const auto outs = function(xs);
  auto loss = at::zeros({}, at::kDouble);
  for (size_t rank = 0; rank < outs.size(); ++rank) loss = loss + loss_of(outs[rank], static_cast<int>(rank));
  const auto first = torch::autograd::grad({loss}, xs, {}, true, true);
  auto second_loss = at::zeros({}, at::kDouble);
  for (size_t rank = 0; rank < xs.size(); ++rank) {
    second_loss = second_loss + loss_of(first[rank], static_cast<int>(rank));
  }
  return {outs, first, torch::autograd::grad({second_loss}, xs, {}, false, false, true)};
}

void expect_close(const Tensor& got, const Tensor& wanted, const std::string& what) {
  EXPECT_EQ(got.sizes(), wanted.sizes()) << what;
  if (got.sizes() != wanted.sizes()) return;
  EXPECT_TRUE(at::allclose(got, wanted, 1e-12, 1e-12)) << what << "\n" << got << wanted;
}

void expect_equal_on_rank(const Derivatives& oracle, const Tensor& input, const OnRank& function, ProcessGroup& group,
                          const std::string& name) {
  const int rank = group.rank();
  const auto what = name + ", rank " + std::to_string(rank) + " of " + std::to_string(group.size());
  const auto x = input.clone().requires_grad_();
  const auto out = function(x, group);
  const auto first = torch::autograd::grad({loss_of(out, rank)}, {x}, {}, true, true)[0];
  const auto second = torch::autograd::grad({loss_of(first, rank)}, {x}, {}, false, false, true)[0];
  expect_close(out, oracle.values[rank], what + ": value");
  expect_close(first, oracle.first[rank], what + ": gradient");
  const auto wanted = oracle.second[rank].defined() ? oracle.second[rank] : at::zeros_like(input);
  expect_close(second.defined() ? second : at::zeros_like(input), wanted, what + ": second gradient");
}

using Inputs = std::function<Tensor(int rank)>;

void compare(int n, const comm::WorldOptions& options, const std::string& name, const Inputs& input_of_rank,
             const OnRank& on_rank, const OnOneDevice& one_device) {
  Tensors inputs;
  for (int rank = 0; rank < n; ++rank) inputs.push_back(input_of_rank(rank));
  const auto oracle = on_one_device(inputs, one_device);
  run_ranks(
      n, [&](ProcessGroup& group) { expect_equal_on_rank(oracle, inputs[group.rank()], on_rank, group, name); },
      options);
}

Tensors for_all(const Tensor& x, size_t n) { return Tensors(n, x); }

/// x at the root, nothing elsewhere.
Tensors at_root(const Tensor& x, int root, size_t n, const Tensor& nothing) {
  Tensors outs(n, nothing);
  outs[root] = x;
  return outs;
}

constexpr int64_t kRows = 7;  // divides by no number of ranks but 1

Inputs whole(bool tied = false) {
  return [tied](int rank) { return input_of(rank, {kRows, 3}, tied); };
}

Inputs part(int n, int64_t dim) {
  return [=](int rank) {
    const auto size = split_sizes(kRows, n)[rank];
    return dim == 0 ? input_of(rank, {size, 3}) : input_of(rank, {3, size});
  };
}

TEST_P(Operators, AllReduce) {
  for (int n = 1; n <= 5; ++n) {
    const auto with = [&](Reduce op) {
      return [op](const Tensor& x, ProcessGroup& group) { return all_reduce(x, group, op); };
    };
    const auto stacked = [](auto reduce) {
      return [reduce](const Tensors& xs) { return for_all(reduce(at::stack(xs)), xs.size()); };
    };
    compare(n, options(), "sum", whole(), with(Reduce::sum), stacked([](const Tensor& x) { return x.sum(0); }));
    compare(n, options(), "mean", whole(), with(Reduce::mean), stacked([](const Tensor& x) { return x.mean(0); }));
    for (const bool tied : {false, true}) {
      compare(n, options(), "max", whole(tied), with(Reduce::max), stacked([](const Tensor& x) { return x.amax(0); }));
      compare(n, options(), "min", whole(tied), with(Reduce::min), stacked([](const Tensor& x) { return x.amin(0); }));
    }
  }
}

TEST_P(Operators, BroadcastAndReduceSumFromEachRoot) {
  for (int n = 1; n <= 5; ++n) {
    for (int root = 0; root < n; ++root) {
      compare(
          n, options(), "broadcast", whole(),
          [=](const Tensor& x, ProcessGroup& group) { return broadcast(x, root, group); },
          [=](const Tensors& xs) {
            // The other inputs are in the graph with a gradient of zero.
            auto sum = xs[root];
            for (const auto& x : xs) sum = sum + 0 * x;
            return for_all(sum, xs.size());
          });
      compare(
          n, options(), "reduce_sum", whole(),
          [=](const Tensor& x, ProcessGroup& group) { return reduce_sum(x, root, group); },
          [=](const Tensors& xs) {
            return at_root(at::stack(xs).sum(0), root, xs.size(), at::empty({0}, at::kDouble));
          });
    }
  }
}

TEST_P(Operators, GatherAndScatterFromEachRootAlongEachDim) {
  for (int n = 1; n <= 5; ++n) {
    for (int root = 0; root < n; ++root) {
      for (const int64_t dim : {0, 1}) {
        const auto shape = dim == 0 ? std::vector<int64_t>{0, 3} : std::vector<int64_t>{3, 0};
        compare(
            n, options(), "gather", part(n, dim),
            [=](const Tensor& x, ProcessGroup& group) { return gather(x, root, group, dim); },
            [=](const Tensors& xs) {
              return at_root(at::cat(xs, dim), root, xs.size(), at::empty(shape, at::kDouble));
            });
        compare(
            n, options(), "scatter",
            [=](int rank) {
              return dim == 0 ? input_of(rank, {kRows, 3}) : input_of(rank, {3, kRows});
            },
            [=](const Tensor& x, ProcessGroup& group) { return scatter(x, root, group, dim); },
            [=](const Tensors& xs) {
              auto sum = xs[root];
              for (const auto& x : xs) sum = sum + 0 * x;
              return sum.split_with_sizes(split_sizes(kRows, static_cast<int>(xs.size())), dim);
            });
      }
    }
  }
}

TEST_P(Operators, AllGatherAndReduceScatterAlongEachDim) {
  for (int n = 1; n <= 5; ++n) {
    for (const int64_t dim : {0, 1, -1}) {
      compare(
          n, options(), "all_gather", part(n, std::abs(dim)),
          [=](const Tensor& x, ProcessGroup& group) { return all_gather(x, group, dim); },
          [=](const Tensors& xs) { return for_all(at::cat(xs, dim), xs.size()); });
      compare(
          n, options(), "reduce_scatter",
          [=](int rank) {
            return dim == 0 ? input_of(rank, {kRows, 3}) : input_of(rank, {3, kRows});
          },
          [=](const Tensor& x, ProcessGroup& group) { return reduce_scatter(x, group, dim); },
          [=](const Tensors& xs) {
            return at::stack(xs).sum(0).split_with_sizes(split_sizes(kRows, static_cast<int>(xs.size())), dim);
          });
    }
  }
}

/// How many rows rank `from` sends to rank `to`.
int64_t rows_between(int from, int to) { return (2 * from + 3 * to) % 4; }

TEST_P(Operators, AllToAllWithUnevenParts) {
  for (int n = 1; n <= 5; ++n) {
    for (const bool told : {false, true}) {
      const auto sent_by = [n](int rank) {
        std::vector<int64_t> sizes;
        for (int to = 0; to < n; ++to) sizes.push_back(rows_between(rank, to));
        return sizes;
      };
      compare(
          n, options(), "all_to_all",
          [=](int rank) {
            const auto sizes = sent_by(rank);
            return input_of(rank, {std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 3});
          },
          [=](const Tensor& x, ProcessGroup& group) {
            std::vector<int64_t> received;
            for (int from = 0; from < n; ++from) received.push_back(rows_between(from, group.rank()));
            return all_to_all(x, group, 0, sent_by(group.rank()),
                              told ? std::span<const int64_t>(received) : std::span<const int64_t>());
          },
          [=](const Tensors& xs) {
            Tensors outs;
            for (int to = 0; to < n; ++to) {
              Tensors parts;
              for (int from = 0; from < n; ++from) parts.push_back(xs[from].split_with_sizes(sent_by(from))[to]);
              outs.push_back(at::cat(parts));
            }
            return outs;
          });
    }
  }
}

TEST_P(Operators, AllToAllFromOneDimToAnother) {
  for (int n = 1; n <= 5; ++n) {
    compare(
        n, options(), "model parallel to data parallel",
        [=](int rank) {
          return input_of(rank, {5, split_sizes(kRows, n)[rank], 2});
        },
        [](const Tensor& x, ProcessGroup& group) { return all_to_all(x, group, 0, 1); },
        [=](const Tensors& xs) { return at::cat(xs, 1).split_with_sizes(split_sizes(5, n), 0); });
    compare(
        n, options(), "data parallel to model parallel",
        [=](int rank) {
          return input_of(rank, {split_sizes(kRows, n)[rank], 5, 2});
        },
        [](const Tensor& x, ProcessGroup& group) { return all_to_all(x, group, 1, 0); },
        [=](const Tensors& xs) { return at::cat(xs, 0).split_with_sizes(split_sizes(5, n), 1); });
  }
}

TEST_P(Operators, SubGroupsWithTheirOwnRoots) {
  run_ranks(
      5,
      [](ProcessGroup& world) {
        const auto group = world.split(world.rank() % 2);  // 0 2 4 and 1 3
        const auto x = input_of(world.rank(), {2}).requires_grad_();
        const auto out = broadcast(x, 1, *group);  // the group's rank 1: world rank 2 or 3
        EXPECT_TRUE(out.equal(input_of(2 + world.rank() % 2, {2})));
        out.sum().backward();
        const double holders = group->rank() == 1 ? group->size() : 0;
        EXPECT_TRUE(x.grad().equal(at::full({2}, holders, at::kDouble)));
      },
      options());
}

TEST_P(Operators, MessagesCarryShapeTypeAndGradient) {
  for (int n = 2; n <= 5; ++n) {
    run_ranks(
        n,
        [n](ProcessGroup& group) {
          const int rank = group.rank(), next = (rank + 1) % n, previous = (rank + n - 1) % n;
          const auto x = input_of(rank, {rank + 1, 2}).requires_grad_();
          auto sending = send_async(x, next, group);
          const auto anchor = at::zeros({}, at::kDouble).requires_grad_();
          const auto received = recv(previous, group, 0, anchor);
          const auto message = sending.wait();
          EXPECT_TRUE(received.equal(input_of(previous, {previous + 1, 2})));
          EXPECT_TRUE(received.requires_grad());
          const auto loss = received.pow(3).sum() + message;
          const auto first = torch::autograd::grad({loss}, {x, anchor}, {}, true, true);
          expect_close(first[0], 3 * x.pow(2), "gradient of a message");
          (first[0].pow(2).sum() + first[1] + message).backward();
          expect_close(x.grad(), 36 * x.detach().pow(3), "second gradient of a message");
        },
        options());
  }
}

TEST_P(Operators, MessagesKeepTheirOrderAndTheirKind) {
  run_ranks(
      2,
      [](ProcessGroup& group) {
        const Tensors sent = {at::arange(3, at::kInt), at::zeros({0, 4}, at::kHalf), at::full({}, true),
                              at::arange(6, at::kFloat).reshape({2, 3}).t()};
        for (size_t i = 0; i < sent.size(); ++i) {
          if (group.rank() == 0) {
            send(sent[i], 1, group, static_cast<int>(i % 2));
          } else {
            const auto got = recv(0, group, static_cast<int>(i % 2));
            EXPECT_EQ(got.scalar_type(), sent[i].scalar_type());
            EXPECT_TRUE(got.equal(sent[i]));
            EXPECT_FALSE(got.requires_grad());
          }
        }
      },
      options());
}

TEST(Messages, GradientsOfEveryTagFindTheirMessage) {
  constexpr int kLast = (1 << 20) - 1;
  run_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      const auto x = at::full({3}, 2.0).requires_grad_(), y = at::full({3}, 3.0).requires_grad_();
      const auto first = send(x, 1, group, kLast), second = send(y, 1, group, 0);
      (first + second).backward();
      EXPECT_TRUE(x.grad().eq(5).all().item<bool>());
      EXPECT_TRUE(y.grad().eq(7).all().item<bool>());
    } else {
      const auto x = recv(0, group, kLast), y = recv(0, group, 0);
      (5 * x + 7 * y).sum().backward();
    }
    EXPECT_EQ(test::text_of<c10::ValueError>([&] { recv(1 - group.rank(), group, kLast + 1); }),
              "recv: tag is 1048576, wanted 0..1048575");
  });
}

TEST(Messages, WhatIsGivenAwayChangesHandsUncopied) {
  std::atomic<const void*> sent{nullptr};
  run_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      auto x = at::ones({1000});
      sent = x.const_data_ptr();
      send(std::move(x), 1, group);
    } else {
      const auto got = recv(0, group);
      EXPECT_EQ(got.const_data_ptr(), sent.load());
      EXPECT_TRUE(got.eq(1).all().item<bool>());
    }
  });
}

TEST(Messages, WhatIsHandedOverIsTheReceiversOwn) {
  run_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      auto x = at::ones({1000});
      send(x, 1, group);
      x.add_(1);
      barrier(group);
      EXPECT_TRUE(x.eq(2).all().item<bool>());
    } else {
      const auto got = recv(0, group);
      barrier(group);
      EXPECT_TRUE(got.eq(1).all().item<bool>());
      got.mul_(5);
      EXPECT_TRUE(got.eq(5).all().item<bool>());
    }
    barrier(group);
  });
}

TEST_P(Operators, ARankWithoutALossTakesPart) {
  run_ranks(
      3,
      [](ProcessGroup& group) {
        const auto x = input_of(group.rank(), {4}).requires_grad_();
        const auto sum = all_reduce(x, group);
        if (group.rank() == 1) {
          sum.sum().backward();
        } else {
          backward_without_loss({sum});
        }
        EXPECT_TRUE(x.grad().equal(at::ones({4}, at::kDouble)));
      },
      options());
}

TEST_P(Operators, AsynchronousFormsGiveTheSame) {
  run_ranks(
      3,
      [](ProcessGroup& group) {
        const auto x = input_of(group.rank(), {kRows, 3}).requires_grad_();
        auto first = all_reduce_async(x, group), second = reduce_scatter_async(x, group);
        auto third = all_gather_async(x, group);
        const auto sum = first.wait(), scattered = second.wait(), gathered = third.wait();
        EXPECT_TRUE(sum.equal(all_reduce(x, group)));
        EXPECT_TRUE(scattered.equal(reduce_scatter(x, group)));
        EXPECT_TRUE(gathered.equal(all_gather(x, group)));
        sum.sum().backward();
        EXPECT_TRUE(x.grad().equal(at::full({kRows, 3}, 3.0, at::kDouble)));
        EXPECT_THROW(first.wait(), c10::Error);
      },
      options());
}

/// Else peaks of memory would depend on how soon the group's thread goes on.
TEST(LaterOperators, LetGoOfTheirMemoryBeforeTheyAreWaitedFor) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto x = at::ones({64}, at::kDouble);
    for (int i = 0; i < 3000; ++i) {
      auto sum = all_reduce_async(x, group).wait();
      const auto memory = sum.storage().getWeakStorageImpl();
      sum.reset();
      ASSERT_TRUE(memory.expired()) << i;
    }
  });
}

TEST_P(Operators, AreTheAdjointsOfTheirGradients) {
  for (int n = 1; n <= 5; ++n) {
    on_ranks(n, [](ProcessGroup& group) { EXPECT_EQ(test::adjoint_faults(group), ""); });
  }
}

TEST_P(Operators, AHandleThatIsDroppedLetsTheOthersGetTheirs) {
  on_ranks(3, [](ProcessGroup& group) {
    const auto x = at::ones({900'000}, at::kDouble);  // in chunks
    auto handle = std::make_unique<Handle>(reduce_scatter_async(x, group));
    if (group.rank() == 0) {
      handle.reset();
    } else {
      EXPECT_TRUE(handle->wait().eq(3).all().item<bool>());
    }
    barrier(group);
  });
}

TEST_P(Operators, AHandleMayOutliveItsGroup) {
  on_ranks(3, [](ProcessGroup& group) {
    const auto begin = [&] {
      const auto same = group.split(0);
      return reduce_scatter_async(at::ones({900'000}, at::kDouble), *same);
    };
    auto handle = begin();
    EXPECT_TRUE(handle.wait().eq(3).all().item<bool>());
    barrier(group);
  });
}

TEST_P(Operators, ATypeThatCannotBeReducedIsRefusedAtOnce) {
  on_ranks(3, [](ProcessGroup& group) {
    for (int i = 0; i < 100; ++i) {  // nobody works on what another has left
      EXPECT_EQ(
          test::text_of([&] { reduce_scatter(at::ones({3}, at::kComplexFloat), group); }),
          "reduce_scatter: tensor is ComplexFloat, wanted Float, Double, Half, BFloat16, Byte, Char, Int or Long");
    }
    EXPECT_EQ(test::text_of([&] { all_reduce(at::ones({3}, at::kLong), group, Reduce::mean); }),
              "all_reduce: the mean is of Long, wanted Float, Double, Half or BFloat16");
    EXPECT_TRUE(all_reduce(at::ones({3}, at::kLong), group).eq(3).all().item<bool>());
    if (GetParam() == Transport::sockets) {
      EXPECT_EQ(test::text_of([&] { broadcast(at::ones({3}, at::kShort), 0, group); }),
                "broadcast: tensor is Short, wanted over sockets Float, Double, Half, BFloat16, Byte, Char, Int, "
                "Long or Bool");
    }
    barrier(group);
  });
}

TEST_P(Operators, ALargeReduceScatterIsSummedInRankOrder) {
  // Parts of no element, of less than a megabyte, of one and a bit more, of several.
  const std::vector<int64_t> sizes = {0, 300'001, 131'073, 100};
  on_ranks(4, [&](ProcessGroup& group) {
    const auto input = [](int rank) { return at::sin(at::arange(431'174, at::kDouble) * (rank + 1)); };
    const auto sum = ((input(0) + input(1)) + input(2)) + input(3);
    const auto own = sum.split_with_sizes(sizes)[group.rank()];
    auto first = reduce_scatter_async(input(group.rank()), group, 0, sizes);
    auto second = reduce_scatter_async(input(group.rank()) * 2, group, 0, sizes);
    EXPECT_TRUE(first.wait().equal(own));
    EXPECT_TRUE(second.wait().equal(own * 2));
  });
}

}  // namespace
}  // namespace tandem::comm
