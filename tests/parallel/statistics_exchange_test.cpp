#include "tandem/parallel/statistics_exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>

#include "tandem/base/rng.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/wire_bytes.h"
#include "tandem/comm/world.h"
#include "tandem/memory/batch_norm.h"
#include "tandem/memory/inplace_abn.h"
#include "tests/support/text_of.h"

// Batch normalisation over ranks is that of one device with the whole batch.
namespace tandem::parallel {
namespace {

using kernels::Invertible;

Tensor random(std::vector<int64_t> shape, uint64_t stream, double mean = 0) {
  const auto values = at::empty(shape, at::kDouble);
  fill_normal_(values, 1.0, 31, stream);
  return values.add_(mean);
}

memory::BatchNormState make_state(int64_t channels, at::ScalarType type = at::kDouble) {
  const auto drawn = random({channels}, 2), weight = drawn + 0.2 * drawn.sign();
  return {.weight = weight.to(type).requires_grad_(),
          .bias = random({channels}, 3).to(type).requires_grad_(),
          .running_mean = random({channels}, 4).to(type),
          .running_var = random({channels}, 5).abs().add_(0.1).to(type),
          .batches = at::zeros({}, at::kLong)};
}

/// A normalisation of a batch, or of a rank's part of it.
using Norm = std::function<Tensor(const Tensor& x, const memory::BatchNormState& state)>;

Tensor plain(const Tensor& x, const memory::BatchNormState& state) { return memory::batch_norm(x, state, true); }

/// Result, gradients of input, weight and bias, then the running statistics and the number of batches.
std::vector<Tensor> run(const Norm& norm, const memory::BatchNormState& state, const Tensor& input,
                        const Tensor& factor) {
  const auto leaf = input.clone().requires_grad_();
  const auto y = norm(leaf * 1, state);
  (y * factor).sum().backward();
  return {y.detach(),         leaf.grad(),       state.weight.grad(), state.bias.grad(),
          state.running_mean, state.running_var, state.batches};
}

/// What the ranks, which have `counts` images each, must get from what one device has.
std::vector<Tensor> part_of(std::vector<Tensor> whole, int64_t first, int64_t count) {
  for (const size_t i : {0, 1}) whole[i] = whole[i].narrow(0, first, count);
  return whole;
}

void expect_near(const std::vector<Tensor>& results, const std::vector<Tensor>& expected, double tolerance) {
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].sizes(), expected[i].sizes()) << i;
    EXPECT_TRUE(at::allclose(results[i], expected[i].to(results[i].scalar_type()), tolerance, tolerance))
        << "result " << i << " differs by " << (results[i] - expected[i]).abs().max().item<double>();
  }
}

struct Case {
  std::vector<int64_t> shape;
  std::vector<int64_t> counts;  // images of each rank
  double tolerance = 1e-12;
};

void expect_one_device(const Case& c, const Norm& norm, comm::Transport transport = comm::Transport::memory) {
  SCOPED_TRACE(testing::Message() << c.shape << " on ranks with " << c.counts << " over " << name_of(transport));
  const auto input = random(c.shape, 1, 0.3), factor = random(c.shape, 7);
  const auto whole = run(norm, make_state(c.shape[1]), input, factor);
  comm::WorldOptions options;
  options.transport = transport;
  options.threads = 1;
  comm::run_ranks(
      static_cast<int>(c.counts.size()),
      [&](comm::ProcessGroup& group) {
        auto state = make_state(c.shape[1]);
        state.ranks = share_statistics(group);
        const auto before = std::accumulate(c.counts.begin(), c.counts.begin() + group.rank(), int64_t{0});
        const auto count = c.counts[static_cast<size_t>(group.rank())];
        auto own = run(norm, state, input.narrow(0, before, count).contiguous(), factor.narrow(0, before, count));
        for (const size_t i : {2, 3}) comm::all_reduce_(own[i], group);
        expect_near(own, part_of(whole, before, count), c.tolerance);
      },
      options);
}

/// Even and uneven parts, and ranks without images.
std::vector<std::vector<int64_t>> divisions() {
  std::vector<std::vector<int64_t>> all;
  for (int ranks = 1; ranks <= 5; ++ranks) all.push_back(comm::split_sizes(7, ranks));
  all.insert(all.end(), {{0, 7}, {7, 0}, {1, 0, 6}, {0, 0, 3, 4, 0}, {1, 1, 1, 1, 3}});
  return all;
}

TEST(StatisticsExchange, ABatchOverRanksEqualsOneDevice) {
  for (const auto& counts : divisions()) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{7, 5}, {7, 3, 4}, {7, 16, 3, 5}}) {
      expect_one_device({shape, counts}, plain);
    }
  }
}

TEST(StatisticsExchange, SocketsCarryItToo) {
  for (const auto& counts : std::vector<std::vector<int64_t>>{{4, 3}, {3, 0, 4}}) {
    expect_one_device({{7, 5, 2, 3}, counts}, plain, comm::Transport::sockets);
  }
}

TEST(StatisticsExchange, InplaceAbnOverRanksEqualsOneDevice) {
  for (const auto activation : {Invertible::identity, Invertible::leaky_relu, Invertible::elu, Invertible::swish}) {
    for (const auto form : {memory::AbnForm::one, memory::AbnForm::two}) {
      const Norm norm = [&](const Tensor& x, const memory::BatchNormState& state) {
        return memory::inplace_abn(x.dim() == 4 ? x.contiguous(at::MemoryFormat::ChannelsLast) : x, activation, state,
                                   true, form);
      };
      for (const auto& counts : divisions()) {
        // Half of the digits are lost at the minimum of swish.
        expect_one_device({{7, 5, 3, 2}, counts, activation == Invertible::swish ? 1e-9 : 1e-11}, norm);
      }
    }
  }
}

TEST(StatisticsExchange, AllRanksHaveTheSameBitsOfRunningStatistics) {
  std::vector<Tensor> means(3), variances(3);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    auto state = make_state(16, at::kFloat);
    state.ranks = share_statistics(group);
    const auto own = static_cast<size_t>(group.rank());
    memory::batch_norm(random({5 - group.rank(), 16, 3, 3}, 20 + own, 1000).to(at::kFloat), state, true);
    means[own] = state.running_mean;
    variances[own] = state.running_var;
  });
  for (const size_t rank : {1, 2}) {
    EXPECT_TRUE(means[rank].equal(means[0]));
    EXPECT_TRUE(variances[rank].equal(variances[0]));
  }
}

TEST(StatisticsExchange, AMeanFarFromZeroCostsNoDigitsOfTheVariance) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    auto state = make_state(3);
    state.momentum = 1;
    state.ranks = share_statistics(group);
    const auto whole = random({8, 3}, 1, 1e6);
    memory::batch_norm(whole.narrow(0, group.rank() * 4, 4), state, true);
    EXPECT_TRUE(at::allclose(state.running_var, whole.var(0), 1e-9, 0));  // from raw sums: 1e-4
  });
}

TEST(StatisticsExchange, OtherTypesStayNearFloat64) {
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-5}, std::pair{at::kBFloat16, 3e-2}}) {
    const auto input = random({7, 5, 4, 4}, 1, 0.3).to(type), factor = random({7, 5, 4, 4}, 7).to(type);
    auto reference = make_state(5);
    const auto whole = run(plain, reference, input.to(at::kDouble), factor.to(at::kDouble));
    comm::run_ranks(3, [&, type = type, tolerance = tolerance](comm::ProcessGroup& group) {
      auto state = make_state(5, at::kFloat);
      state.ranks = share_statistics(group);
      const auto [begin, end] = comm::split_range(7, 3, group.rank());
      auto own = run(plain, state, input.slice(0, begin, end), factor.slice(0, begin, end));
      EXPECT_EQ(own[0].scalar_type(), type);
      for (const size_t i : {2, 3}) comm::all_reduce_(own[i], group);
      auto expected = part_of(whole, begin, end - begin);
      for (size_t i = 0; i < own.size(); ++i) {
        const double scale = std::max(1.0, expected[i].abs().max().item<double>());
        EXPECT_LE((own[i].to(at::kDouble) - expected[i]).abs().max().item<double>(), tolerance * scale) << i;
      }
    });
  }
}

TEST(StatisticsExchange, SendsMomentsForwardAndTwoSumsBackward) {
  constexpr int64_t kChannels = 5, kNumber = 8;
  for (const int ranks : {2, 3, 5}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      auto state = make_state(kChannels);
      state.ranks = share_statistics(group);
      group.meter().reset();
      run(plain, state, random({3, kChannels}, 1), random({3, kChannels}, 7));
      const auto counts = group.meter().counts();
      const auto sums = comm::WireBytes{group.rank(), ranks}.all_reduce(2 * kChannels, kNumber);
      ASSERT_EQ(counts.size(), 2U);
      EXPECT_EQ(counts.at("all_gather").calls, 1);
      EXPECT_EQ(counts.at("all_gather").bytes, (ranks - 1) * (2 * kChannels + 1) * kNumber);
      EXPECT_EQ(counts.at("all_reduce").calls, 1);
      EXPECT_EQ(counts.at("all_reduce").bytes, std::accumulate(sums.begin(), sums.end(), int64_t{0}));
    });
  }
}

TEST(StatisticsExchange, EvaluationAndOneRankSendNothing) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    auto state = make_state(5);
    state.ranks = share_statistics(group);
    group.meter().reset();
    const auto x = random({3, 5}, 1);
    const auto expected =
        at::batch_norm(x, state.weight, state.bias, state.running_mean, state.running_var, false, 0, 1e-5, false);
    if (group.rank() == 0) {  // alone: evaluation waits for nobody
      EXPECT_TRUE(memory::batch_norm(x, state, false).equal(expected));
    }
    EXPECT_TRUE(group.meter().counts().empty());
  });
  EXPECT_EQ(share_statistics(*comm::make_single_group()), nullptr);
}

TEST(StatisticsExchange, OneValueAChannelIsRefusedOnAllRanks) {
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    auto state = make_state(5);
    state.ranks = share_statistics(group);
    const auto text = test::text_of<c10::ValueError>([&] {
      memory::batch_norm(at::ones({group.rank() == 1 ? 1 : 0, 5}, at::kDouble), state, true);
    });
    EXPECT_EQ(text,
              "batch normalisation: the batch of all ranks has one value a channel, wanted more in training: raise the "
              "batch");
    memory::batch_norm(at::ones({0, 5}, at::kDouble), state, true);  // an empty batch moves nothing
    EXPECT_EQ(state.batches.item<int64_t>(), 0);
    EXPECT_TRUE(state.running_mean.equal(make_state(5).running_mean));
  });
}

TEST(StatisticsExchange, RefusesSecondDerivatives) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    auto state = make_state(5);
    state.ranks = share_statistics(group);
    const auto x = random({3, 5}, 1).requires_grad_();
    const auto y = memory::batch_norm(x, state, true);
    EXPECT_EQ(test::text_of<c10::NotImplementedError>(
                  [&] { torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true); }),
              "batch normalisation over ranks: its gradient has none of its own: for second derivatives normalise the "
              "images of each rank");
  });
}

}  // namespace
}  // namespace tandem::parallel
