#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/models/network/layers.h"
#include "tests/support/text_of.h"

// Normalisation by the statistics of a few images at a time.
namespace tandem::models {
namespace {

constexpr int64_t kImages = 11, kGhost = 4, kChannels = 16;  // groups of 4, 4 and 3

Tensor random(const std::vector<int64_t>& shape, uint64_t stream, at::ScalarType type) {
  const auto values = at::empty(shape, at::kDouble);
  fill_normal_(values, 1.0, 41, stream);
  return values.to(type);
}

std::shared_ptr<Normalization> norm_of(Norm norm, at::ScalarType type) {
  auto made = make_normalization(norm, kChannels, memory::activation_of("relu"));
  made->normalize_by(kGhost);
  made->initialize(1, "bn");
  made->to(type);
  const at::NoGradGuard no_grad;
  made->named_parameters()["weight"].copy_(random({kChannels}, 5, type));
  made->named_parameters()["bias"].copy_(random({kChannels}, 6, type));
  return made;
}

struct Case {
  std::vector<int64_t> shape;
  at::ScalarType type;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
};

/// The output, the gradients of the input, the residual, weight and bias, then the buffers.
template <class Forward>
std::vector<Tensor> run(Normalization& norm, const Case& one, bool has_residual, const Forward& forward) {
  const auto input = random(one.shape, 1, one.type).contiguous(one.format).requires_grad_();
  const auto residual =
      has_residual ? random(one.shape, 2, one.type).contiguous(one.format).requires_grad_() : Tensor();
  const auto output = forward(input, residual);
  (output * random(one.shape, 3, one.type)).sum().backward();
  std::vector<Tensor> all = {output.detach(), input.grad()};
  if (has_residual) all.push_back(residual.grad());
  for (const auto& weight : norm.parameters()) all.push_back(weight.grad());
  for (const auto& buffer : norm.buffers()) all.push_back(buffer);
  return all;
}

TEST(GhostNorm, IsBatchNormalisationOfABatchThatIsCutByHand) {
  for (const auto& one : std::vector<Case>{{{kImages, kChannels, 3, 5}, at::kDouble},
                                           {{kImages, kChannels}, at::kDouble},
                                           {{kImages, kChannels, 4, 4}, at::kFloat, at::MemoryFormat::ChannelsLast}}) {
    for (const bool has_residual : {false, true}) {
      const auto ghost = norm_of(Norm::ghost, one.type), batch = norm_of(Norm::batch, one.type);
      const auto together = run(*ghost, one, has_residual, [&](const Tensor& x, const Tensor& residual) {
        return ghost->forward(x, Then::activation, residual);
      });
      const auto by_hand = run(*batch, one, has_residual, [&](const Tensor& x, const Tensor& residual) {
        std::vector<Tensor> parts;
        for (int64_t first = 0; first < kImages; first += kGhost) {
          const auto count = std::min(kGhost, kImages - first);
          const auto part = has_residual ? residual.narrow(0, first, count) : Tensor();
          parts.push_back(batch->forward(x.narrow(0, first, count), Then::activation, part));
        }
        return at::cat(parts);
      });
      const double close = one.type == at::kDouble ? 1e-12 : 1e-5;
      ASSERT_EQ(together.size(), by_hand.size());
      for (size_t i = 0; i < together.size(); ++i) {
        EXPECT_TRUE(at::allclose(together[i], by_hand[i], close, close)) << "tensor " << i;
      }
      EXPECT_EQ(ghost->named_buffers()["num_batches_tracked"].item<int64_t>(), 3);
    }
  }
}

TEST(GhostNorm, ABatchOfOneGroupIsBatchNormalisation) {
  const auto ghost = norm_of(Norm::ghost, at::kDouble), batch = norm_of(Norm::batch, at::kDouble);
  for (const int64_t images : {0, 2, 4}) {
    const auto input = random({images, kChannels, 3, 3}, 1, at::kDouble);
    EXPECT_TRUE(ghost->forward(input).equal(batch->forward(input))) << images;
  }
}

TEST(GhostNorm, EvaluationUsesTheRunningStatistics) {
  const auto ghost = norm_of(Norm::ghost, at::kDouble), batch = norm_of(Norm::batch, at::kDouble);
  ghost->eval();
  batch->eval();
  const auto input = random({kImages, kChannels, 3, 3}, 1, at::kDouble);
  EXPECT_TRUE(ghost->forward(input).equal(batch->forward(input)));
}

TEST(GhostNorm, RunningStatisticsThatAreHeldStay) {
  const auto ghost = norm_of(Norm::ghost, at::kDouble);
  const auto before = ghost->named_buffers()["running_mean"].clone();
  Context context = current_context();
  context.statistics = BatchStatistics::hold;
  const ContextScope scope(context);
  ghost->forward(random({kImages, kChannels, 3, 3}, 1, at::kDouble));
  EXPECT_TRUE(ghost->named_buffers()["running_mean"].equal(before));
}

TEST(GhostNorm, AGroupOfOneImageWithOneValueAChannelIsRefused) {
  const auto ghost = norm_of(Norm::ghost, at::kDouble);
  EXPECT_EQ(
      test::text_of<c10::ValueError>([&] {
        ghost->forward(random({5, kChannels}, 1, at::kDouble));
      }),
      "batch normalisation: input is [1, 16], wanted more than one value a channel in training: raise the batch of "
      "each rank");
  EXPECT_NO_THROW(ghost->forward(random({5, kChannels, 1, 2}, 1, at::kDouble)));
}

}  // namespace
}  // namespace tandem::models
