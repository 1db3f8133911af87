#include "tandem/memory/channel_statistics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/memory/batch_norm.h"
#include "tandem/memory/inplace_abn.h"
#include "tandem/memory/recompute.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

constexpr int64_t kChannels = 3;

Tensor random(std::vector<int64_t> shape, uint64_t stream, double mean = 0) {
  const auto values = at::empty(shape, at::kDouble);
  fill_normal_(values, 1.0, 41, stream);
  return values.add_(mean);
}

BatchNormState make_state(at::ScalarType type = at::kDouble) {
  return {.weight = random({kChannels}, 2).to(type),
          .bias = random({kChannels}, 3).to(type),
          .running_mean = at::zeros({kChannels}, type),
          .running_var = at::ones({kChannels}, type),
          .batches = at::zeros({}, at::kLong)};
}

void merge(ChannelMoments& moments, const Tensor& part) {
  const auto mean = part.mean(0).contiguous(), squares = (part - mean).square().sum(0).contiguous();
  moments.merge(static_cast<double>(part.size(0)), mean.const_data_ptr<double>(), squares.const_data_ptr<double>());
}

TEST(ChannelStatistics, OfPartsAreThoseOfTheWhole) {
  const auto whole = random({20, kChannels}, 1, 1e6);
  ChannelMoments moments(kChannels);
  for (const auto& part : whole.split_with_sizes({7, 1, 12}, 0)) merge(moments, part);
  const double nothing[kChannels] = {};
  moments.merge(0, nothing, nothing);
  const auto statistics = moments.statistics(/*ranks=*/nullptr);
  EXPECT_EQ(statistics.rows, 20);
  for (int64_t c = 0; c < kChannels; ++c) {
    EXPECT_NEAR(statistics.mean[c], whole.mean(0)[c].item<double>(), 1e-9);
    EXPECT_NEAR(statistics.variance[c], whole.var(0, /*unbiased=*/false)[c].item<double>(), 1e-9);
  }
}

TEST(ChannelStatistics, OfOneValueAreRefused) {
  ChannelMoments moments(kChannels);
  merge(moments, random({1, kChannels}, 1));
  EXPECT_EQ(test::text_of<c10::ValueError>([&] { moments.statistics(/*ranks=*/nullptr); }),
            "batch normalisation: the batch has one value a channel, wanted more in training: raise the batch");
}

TEST(ChannelStatistics, MoveAsThoseOfLibtorchDo) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto x = random({9, kChannels}, 1, 2).to(type);
    const auto state = make_state(type);
    ChannelMoments moments(kChannels);
    merge(moments, x.to(at::kDouble));
    move_running(state, moments.statistics(/*ranks=*/nullptr));
    const auto mean = x.to(at::kDouble).mean(0) * 0.1, variance = x.to(at::kDouble).var(0) * 0.1 + 0.9;
    const double tolerance = type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-6 : 1e-2;
    EXPECT_TRUE(state.running_mean.to(at::kDouble).allclose(mean, tolerance, tolerance)) << type;
    EXPECT_TRUE(state.running_var.to(at::kDouble).allclose(variance, tolerance, tolerance)) << type;
    EXPECT_EQ(state.batches.item<int64_t>(), 1);
  }
}

/// What a context that holds them leaves as it is: the kernels' path and ATen's, with and without an activation.
TEST(ChannelStatistics, AreHeldByTheContextWhateverTheNorm) {
  auto context = current_context();
  context.statistics = BatchStatistics::hold;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const bool in_place : {false, true}) {
      for (const bool holds : {false, true}) {
        const auto state = make_state(type);
        const ContextScope scope(holds ? context : current_context());
        const auto x = random({9, kChannels}, 1, 2).to(type);
        in_place ? inplace_abn(x, kernels::Invertible::elu, state, true) : batch_norm(x, state, true);
        EXPECT_EQ(state.running_mean.equal(at::zeros({kChannels}, type)), holds) << type << in_place;
        EXPECT_EQ(state.running_var.equal(at::ones({kChannels}, type)), holds) << type << in_place;
        EXPECT_EQ(state.batches.item<int64_t>(), holds ? 0 : 1) << type << in_place;
      }
    }
  }
}

/// The batches of a step, whichever norm runs them, recomputed or not.
TEST(ChannelStatistics, OfDeferredPartsMoveOnceAsThoseOfTheWhole) {
  const auto whole = random({23, kChannels}, 1, 1e3);
  const auto oracle = make_state();
  at::batch_norm(whole, {}, {}, oracle.running_mean, oracle.running_var, true, 0.1, 1e-5, false);
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const bool in_place : {false, true}) {
      for (const bool recomputed : {false, true}) {
        auto state = make_state(type);
        state.weight.requires_grad_();
        const auto norm = [&](const Tensor& x) {
          return in_place ? inplace_abn(x + 0, kernels::Invertible::elu, state, true) : batch_norm(x, state, true);
        };
        StatisticsBook book;
        {
          const ContextScope scope(deferring(book));
          for (const auto& part : whole.to(type).split_with_sizes({7, 0, 13, 3}, 0)) {
            const auto x = part.clone().requires_grad_();
            const auto y = recomputed ? recompute(norm, x) : norm(x);
            EXPECT_EQ(state.batches.item<int64_t>(), 0);
            EXPECT_TRUE(state.running_mean.equal(at::zeros({kChannels}, type)));
            y.square().sum().backward();
          }
        }
        book.commit();
        book.commit();
        EXPECT_EQ(state.batches.item<int64_t>(), 1);
        const double tolerance = type == at::kDouble ? 1e-12 : 1e-5;
        EXPECT_TRUE(state.running_mean.to(at::kDouble).allclose(oracle.running_mean, tolerance, 0)) << in_place;
        EXPECT_TRUE(state.running_var.to(at::kDouble).allclose(oracle.running_var, tolerance, 0)) << in_place;
      }
    }
  }
}

TEST(ChannelStatistics, AreNotDeferredWhereTheContextHoldsThem) {
  auto context = current_context();
  context.statistics = BatchStatistics::hold;
  const ContextScope scope(context);
  StatisticsBook book;
  EXPECT_EQ(deferring(book), context);
}

}  // namespace
}  // namespace tandem::memory
