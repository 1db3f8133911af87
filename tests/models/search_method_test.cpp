#include "tandem/models/search_method.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/models/backbone.h"
#include "tandem/models/cells/mixture.h"
#include "tandem/models/cells/search_alphas.h"
#include "tandem/models/model.h"
#include "tandem/models/space.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

using test::text_of;

constexpr CellLayerOptions kLayers = {.channels = 8, .is_affine = false, .normalises_pools = true};

Tensor random(const std::vector<int64_t>& shape, uint64_t stream) {
  auto values = at::empty(shape);
  fill_normal_(values, 1.0, 5, stream);
  return values.to(at::kDouble);
}

Tensor mixed(const char* method, const std::vector<std::string_view>& operations, const Tensor& x,
             const std::vector<double>& weights, CellLayerOptions layers = kLayers) {
  const auto mixture = search_method(method).make_mixture({.operations = operations}, layers);
  mixture->to(at::kDouble);
  return mixture->add_to({}, CellValue(x), at::tensor(weights, at::kDouble));
}

TEST(SearchMethod, UnknownNamesAreRefusedWithTheList) {
  EXPECT_EQ(text_of<SettingsError>([] { search_method("dart"); }),
            "method is 'dart', wanted darts, pc-darts, darts-minus or gdas");
}

TEST(SearchMethod, DartsAddsAllOperationsTimesTheirWeights) {
  const auto x = random({2, 8, 4, 4}, 1);
  const auto pool = make_operation("avg_pool_3x3", kLayers);
  pool->to(at::kDouble);
  const auto sum = mixed("darts", {"none", "skip_connect", "avg_pool_3x3"}, x, {0.5, 0.3, 0.2});
  EXPECT_LT((sum - (x * 0.3 + pool->forward(x) * 0.2)).abs().max().item<double>(), 1e-14);
}

/// Of 8 channels in 4 groups the first of each group come first, then the second.
TEST(SearchMethod, PcDartsLeavesChannelsOutAndShufflesThem) {
  const auto x = random({2, 8, 4, 4}, 1);
  const auto skipped = mixed("pc-darts", {"none", "skip_connect"}, x, {0.25, 0.75, 0.5});
  auto expected = x.clone();
  expected.narrow(1, 0, 2).mul_(0.75);
  expected = expected.index_select(1, at::tensor({0, 2, 4, 6, 1, 3, 5, 7})) * 0.5;
  EXPECT_TRUE(skipped.equal(expected));
}

TEST(SearchMethod, PcDartsPoolsTheChannelsThatItLeavesOutWhereOperationsHalve) {
  auto layers = kLayers;
  layers.stride = 2;
  const auto x = random({2, 8, 4, 4}, 1);
  const auto halved = mixed("pc-darts", {"none"}, x, {1, 1}, layers);
  const auto pooled = at::max_pool2d(x, 2, 2);
  EXPECT_TRUE(halved.select(1, 1).equal(pooled.select(1, 2)));
  EXPECT_TRUE(halved.select(1, 7).equal(pooled.select(1, 7)));
  for (const int64_t none : {0, 4}) EXPECT_EQ(halved.select(1, none).abs().max().item<double>(), 0);
}

TEST(SearchMethod, PcDartsWeighsTheEdgesOfANode) {
  const auto& method = search_method("pc-darts");
  const auto operations = random({5, 3}, 1), edges = random({5}, 2);
  const Alphas alphas = {.operations = operations, .edges = edges, .inputs = 2};
  const auto weights = method.weights(alphas);
  ASSERT_EQ(weights.sizes(), (std::vector<int64_t>{5, 4}));
  const auto of_edges = weights.select(1, 3);
  EXPECT_TRUE(of_edges.narrow(0, 0, 2).allclose(edges.narrow(0, 0, 2).softmax(0)));
  EXPECT_TRUE(of_edges.narrow(0, 2, 3).allclose(edges.narrow(0, 2, 3).softmax(0)));
  EXPECT_TRUE(method.shares(alphas).allclose(operations.softmax(1) * of_edges.unsqueeze(1)));
}

TEST(SearchMethod, PcDartsRefusesChannelsThatItCannotDivide) {
  EXPECT_EQ(text_of<SettingsError>(
                [] { make({.name = "search:darts", .cells = 8, .cell_channels = 12, .search_method = "pc-darts"}); }),
            "cell_channels is 12 with pc-darts, wanted a multiple of 8, twice the channels of which one goes through "
            "the operations");
}

TEST(SearchMethod, TheSkipConnectionOfDartsMinusFallsAndStaysWhereTrainingEnded) {
  const auto x = random({2, 8, 4, 4}, 1);
  const auto sum = mixed("darts-minus", {"none", "skip_connect"}, x, {0.5, 0.25, 0.125});
  EXPECT_TRUE(sum.equal(x * 0.25 + x * 0.125));
  SearchAlphas alphas(space_of("s3"), search_method("darts-minus"));
  const auto skip_at = [&](double progress) {
    const ContextScope scope({.progress = progress});
    return alphas.weights()[0].select(1, 3);
  };
  EXPECT_TRUE(skip_at(0).eq(1).all().item<bool>());
  EXPECT_TRUE(skip_at(0.75).eq(0.25).all().item<bool>());
  alphas.eval();
  EXPECT_TRUE(skip_at(0).eq(0.25).all().item<bool>());
}

class Gdas : public testing::Test {
 protected:
  /// Zeros and ones, of step `step`.
  Tensor weights(int64_t step, double progress = 0, bool is_training = true) const {
    const ContextScope scope({.seed = 7, .step = step, .progress = progress});
    return method_.weights(alphas(progress, is_training));
  }

  Alphas alphas(double progress = 0, bool is_training = true) const {
    return {.operations = operations_, .stream = 5, .progress = progress, .is_training = is_training};
  }

  SearchMethod method_ = search_method("gdas");
  Tensor operations_ = random({3, 4}, 1).requires_grad_();
};

/// Gumbel's numbers draw an operation as often as its share says.
TEST_F(Gdas, DrawsOneOperationOfEachEdgeByItsShare) {
  constexpr int kSteps = 4000;
  auto counts = at::zeros({3, 4}, at::kDouble);
  for (int step = 0; step < kSteps; ++step) {
    const auto drawn = weights(step).detach();
    ASSERT_TRUE(drawn.sum(1).eq(1).all().item<bool>());
    ASSERT_TRUE((drawn.eq(0) | drawn.eq(1)).all().item<bool>());
    counts += drawn;
  }
  const auto shares = method_.shares(alphas()).detach();
  const auto deviations = (shares * (1 - shares) / kSteps).sqrt();
  EXPECT_LT(((counts / kSteps - shares) / deviations).abs().max().item<double>(), 4);
}

TEST_F(Gdas, DrawsTheSameInAllPassesOfAStep) {
  int same = 0;
  for (int step = 0; step < 100; ++step) {
    EXPECT_TRUE(weights(step).equal(weights(step)));
    same += weights(step).equal(weights(step + 1)) ? 1 : 0;
  }
  EXPECT_LT(same, 50);
}

TEST_F(Gdas, TakesTheLargestShareOutsideOfTraining) {
  const auto expected = operations_.detach().argmax(1);
  for (int step = 0; step < 20; ++step) EXPECT_TRUE(weights(step, 0, false).argmax(1).equal(expected));
}

/// Of two operations, s of the softmax follows from the gradient s (1 - s) / temperature; what it was drawn by, whose
/// logarithm of the odds is log(s / (1 - s)) * temperature, is the same at each temperature.
TEST_F(Gdas, GradientsAreThoseOfASoftmaxThatSharpensFrom10To01) {
  operations_ = random({3, 2}, 1).requires_grad_();
  const auto odds_at = [&](double progress, double temperature) {
    const auto first = weights(3, progress).select(1, 0);
    const auto gradient = torch::autograd::grad({first.sum()}, {operations_})[0];
    EXPECT_LT(gradient.sum(1).abs().max().item<double>(), 1e-15);
    const auto share = 0.5 + (0.25 - gradient.select(1, 0) * temperature).sqrt();  // of the drawn one
    return (share / (1 - share)).log() * temperature;
  };
  const auto expected = odds_at(0, 10);
  EXPECT_GT(expected.min().item<double>(), 1e-3);
  for (const auto& [progress, temperature] : {std::pair(0.5, 5.05), {0.9, 1.09}}) {
    EXPECT_TRUE(odds_at(progress, temperature).allclose(expected, 1e-6)) << progress;
  }
}

TEST_F(Gdas, OperationsThatWereNotDrawnCostNothing) {
  const auto x = random({2, 8, 4, 4}, 1);
  const auto mixture = method_.make_mixture({.operations = {"nor_conv_3x3", "skip_connect"}}, kLayers);
  mixture->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& buffer : mixture->buffers()) buffer.zero_();
  EXPECT_TRUE(mixture->add_to({}, CellValue(x), at::tensor({0.0, 1.0}, at::kDouble)).equal(x));
  for (const auto& buffer : mixture->buffers()) EXPECT_TRUE(buffer.eq(0).all().item<bool>());
}

}  // namespace
}  // namespace tandem::models
