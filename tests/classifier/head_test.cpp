#include "tandem/classifier/class_sharded_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <numbers>

#include "tandem/base/device_kernels.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/support/text_of.h"

namespace tandem::classifier {
namespace {

constexpr int64_t kClasses = 11, kDim = 4, kRows = 7;  // nothing divides

Tensor features_of_all() {
  const auto features = at::empty({kRows, kDim}, at::kDouble);
  fill_normal_(features, 1.0, 3, 1);
  return features;
}
Tensor targets_of_all() {
  return at::tensor(std::vector<int64_t>{0, 10, 3, -1, 7, 3, 5}, at::kLong);
}  // first, last, left out, twice

Tensor whole_weight() {
  comm::ProcessGroup& one = *[] {
    static auto group = comm::make_single_group();
    return group.get();
  }();
  return ClassShardedHead({.classes = kClasses, .dim = kDim, .dtype = at::kDouble}, one)
      .parameter()
      .tensor.detach()
      .clone();
}

/// The marginal cosine by its definition, with libtorch's own derivatives.
Tensor marginal(const Margin& margin, const Tensor& cosine) {
  const auto theta = at::acos(cosine), phi = theta * margin.factor + margin.angle;
  const auto turns = at::floor(phi.detach() / std::numbers::pi);
  const auto is_within = turns.eq(0);
  auto value = at::cos(phi);
  if (margin.beyond == Beyond::extend) value = (1 - 2 * at::remainder(turns, 2)) * value - 2 * turns;
  if (margin.beyond == Beyond::linear)
    value = at::where(is_within, value, cosine - margin.angle * std::sin(margin.angle));
  if (margin.beyond == Beyond::easy) value = at::where(cosine.gt(0), value, cosine);
  if (margin.beyond == Beyond::clamp) value = at::where(is_within, value, at::full_like(value, -1));
  value = (margin.softening * cosine + value - margin.cosine) / (1 + margin.softening);
  return margin.gradient == TargetGradient::exact ? value : cosine + (value - cosine).detach();
}

/// One device, libtorch's own operators.
struct Oracle {
  Tensor features = features_of_all().requires_grad_(), weight = whole_weight().requires_grad_(), loss;
  explicit Oracle(const Scoring& scoring) {
    const auto x_length = features.norm(2, {1}, true), w_length = weight.norm(2, {1}, true).t();
    const auto cosine = features.mm(weight.t()) / x_length / w_length;
    auto size = at::full({1, 1}, scoring.scale, at::kDouble);
    if (!scoring.normalise_features) size = size * x_length;
    if (!scoring.normalise_weight) size = size * w_length;
    auto others = size * cosine;
    if (scoring.filter < 1) others = at::where(cosine.gt(scoring.filter), at::zeros({}, at::kDouble), others);
    const auto hot = at::one_hot(targets_of_all().clamp_min(0), kClasses).to(at::kBool);
    const auto target = scoring.margin.is_none() ? size * cosine : size * marginal(scoring.margin, cosine);
    const auto scores = at::where(hot, target, others);
    loss = at::cross_entropy_loss(scores, targets_of_all(), {}, at::Reduction::Mean, -1, scoring.smoothing);
    loss.backward();
  }
};

Scoring with(Scoring scoring, double smoothing, double filter = 1.0) {
  scoring.smoothing = smoothing;
  scoring.filter = filter;
  return scoring;
}

Scoring arcface_beyond(Beyond beyond, TargetGradient gradient = TargetGradient::exact) {
  auto scoring = arcface(16, 1.2);  // many targets are past pi
  scoring.margin.beyond = beyond;
  scoring.margin.gradient = gradient;
  return scoring;
}

std::vector<Scoring> scorings() {
  auto scaled = plain_softmax();
  scaled.scale = 3;
  return {plain_softmax(),
          scaled,
          with(plain_softmax(), 0.1),
          normalised_softmax(24),
          cosface(24, 0.2),
          cosface(64, 0.35),
          with(cosface(24, 0.2), 0.2),
          with(cosface(24, 0.2), 0.0, 0.1),
          with(arcface(24, 0.5), 0.1, 0.2),
          arcface(64, 0.5),
          arcface_beyond(Beyond::extend),
          arcface_beyond(Beyond::cosine),
          arcface_beyond(Beyond::linear),
          arcface_beyond(Beyond::easy),
          arcface_beyond(Beyond::clamp),
          arcface_beyond(Beyond::cosine, TargetGradient::detached),
          combined_margin(32, 0.9, 0.4, 0.15),
          combined_margin(32, 1.35, 0, 0),
          sphereface(4, 0),
          sphereface(4, 5),
          sphereface(1.7, 0),
          with(sphereface(3, 2), 0.1),
          large_margin_softmax(2, 0),
          large_margin_softmax(4, 8),
          with(large_margin_softmax(3, 1), 0.1)};
}

/// How the loss is worked out.
struct Form {
  const char* name;
  bool naive;
  BlockOptions blocks;
  bool operators;  // libtorch's in place of the kernels
  std::optional<Sampling> sampling = {};
  bool in_backward = false;  // the weight's gradient goes to an update, block by block
};

const std::vector<Form>& forms() {
  constexpr int64_t kAll = 1 << 20, kFourClasses = 4 * 16 * 8;
  static const std::vector<Form> all = {{"naive", true, {}, false},
                                        {"all kept", false, {kAll, 0}, false},
                                        {"one block", false, {0, 0}, false},
                                        {"blocks of two classes", false, {0, 2}, false},
                                        {"blocks, some kept", false, {kFourClasses, 2}, false},
                                        {"operators", false, {kFourClasses, 2}, true},
                                        {"sampled at rate 1", false, {kFourClasses, 2}, false, Sampling{1.0, true}},
                                        {"update in backward", false, {kFourClasses, 2}, false, {}, true},
                                        {"both", false, {0, 2}, false, Sampling{1.0, false}, true}};
  return all;
}

void expect_equal(const Oracle& oracle, const Scoring& scoring, const Form& form, comm::ProcessGroup& group) {
  leave_to_operators(Kernels::scores, form.operators);
  ClassShardedHead head({.classes = kClasses,
                         .dim = kDim,
                         .scoring = scoring,
                         .naive = form.naive,
                         .blocks = form.blocks,
                         .sampling = form.sampling,
                         .dtype = at::kDouble},
                        group);
  auto updated = at::zeros_like(head.parameter().tensor.detach());
  if (form.in_backward) {
    head.set_row_update([&](const Rows& rows, const Tensor& own) {
      auto of_rows = rows.of(updated);
      of_rows.add_(own);
      rows.put_back(updated, of_rows);
    });
  }
  const auto sizes = comm::split_sizes(kRows, group.size());
  const auto [begin, end] = comm::split_range(kRows, group.size(), group.rank());
  auto features = features_of_all().slice(0, begin, end).clone().requires_grad_();
  const auto loss = head.loss(features, targets_of_all().slice(0, begin, end).contiguous(), sizes);
  loss.backward();
  const auto classes = comm::split_range(kClasses, group.size(), group.rank());
  const auto expected = oracle.weight.grad().slice(0, classes.first, classes.second);
  EXPECT_NEAR(loss.item<double>(), oracle.loss.item<double>(), 1e-11) << form.name << ", ranks: " << group.size();
  EXPECT_TRUE(at::allclose(features.grad(), oracle.features.grad().slice(0, begin, end), 1e-10, 1e-12))
      << form.name << ", ranks: " << group.size() << features.grad() << oracle.features.grad();
  EXPECT_EQ(head.parameter().tensor.grad().defined(), !form.in_backward);
  const auto gradient = form.in_backward ? updated
                        : form.sampling  ? head.parameter().tensor.grad().to_dense()
                                         : head.parameter().tensor.grad();
  EXPECT_TRUE(at::allclose(gradient, expected, 1e-10, 1e-12))
      << form.name << ", ranks: " << group.size() << gradient << expected;
}

class Head : public testing::TestWithParam<Scoring> {};
INSTANTIATE_TEST_SUITE_P(Scorings, Head, testing::ValuesIn(scorings()));

TEST_P(Head, LossAndGradientsEqualOneDevice) {
  const Oracle oracle(GetParam());
  for (const auto& form : forms()) {
    if (form.sampling && GetParam().smoothing > 0) continue;
    for (int world = 1; world <= 5; ++world) {
      comm::run_ranks(world, [&](comm::ProcessGroup& group) { expect_equal(oracle, GetParam(), form, group); },
                      {.threads = world % 3 + 1});
    }
  }
}

/// The loss of one row whose target is at `theta` of its class.
Tensor loss_at(const Scoring& scoring, const Tensor& x, const Tensor& weight) {
  const auto group = comm::make_single_group();
  return sharded_softmax_loss(x, weight, at::zeros({1}, at::kLong), 0, weight.size(0), scoring, *group);
}

double largest_gradient_error(const Scoring& scoring, Tensor x, Tensor weight) {
  constexpr double kStep = 1e-6;
  x.requires_grad_();
  weight.requires_grad_();
  loss_at(scoring, x, weight).backward();
  const at::NoGradGuard no_grad;
  double error = 0;
  for (const auto& tensor : {x, weight}) {
    auto* numbers = tensor.mutable_data_ptr<double>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const double before = numbers[i];
      double losses[2];
      for (const int side : {0, 1}) {
        numbers[i] = before + (side == 1 ? kStep : -kStep);
        losses[side] = loss_at(scoring, x, weight).item<double>();
      }
      numbers[i] = before;
      const double wanted = (losses[1] - losses[0]) / (2 * kStep), found = tensor.grad().flatten()[i].item<double>();
      error = std::max(error, std::abs(found - wanted) / (1 + std::abs(wanted)));
    }
  }
  return error;
}

TEST(Head, GradientsHoldNearZeroNearTheSwitchAndNearPi) {
  auto wide = at::empty({5, kDim}, at::kDouble);
  fill_normal_(wide, 1.0, 3, 9);
  for (auto scoring : scorings()) {
    if (scoring.margin.gradient == TargetGradient::detached) continue;  // no derivative of the value
    if (scoring.filter < 1) continue;                                   // jumps
    if (scoring.scale > 1) scoring.scale = 4;                           // the softmax is not flat then
    const double at_switch = (std::numbers::pi - scoring.margin.angle) / scoring.margin.factor;
    for (const double theta : {1e-3, 0.02, at_switch - 1e-3, at_switch + 1e-3, 3.12, std::numbers::pi - 1e-3}) {
      if (theta >= std::numbers::pi) continue;
      auto weight = wide.clone();
      weight[0] = at::tensor(std::vector<double>{0.8, 0, 0, 0}, at::kDouble);
      const auto x = at::tensor(std::vector<double>{1.3 * std::cos(theta), 1.3 * std::sin(theta), 0, 0}, at::kDouble);
      EXPECT_LT(largest_gradient_error(scoring, x.unsqueeze(0), weight), 1e-5)
          << "factor " << scoring.margin.factor << " angle " << scoring.margin.angle << " policy "
          << static_cast<int>(scoring.margin.beyond) << " theta " << theta;
    }
  }
}

TEST(Head, ABiasIsTheWeightOfAFeatureThatIsOne) {
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, [](comm::ProcessGroup& group) {
      const auto sizes = comm::split_sizes(kRows, group.size());
      const auto [begin, end] = comm::split_range(kRows, group.size(), group.rank());
      const auto own = features_of_all().slice(0, begin, end), one = at::ones({end - begin, 1}, at::kDouble);
      const auto targets = targets_of_all().slice(0, begin, end).contiguous();
      const auto gradients_of = [&](const HeadOptions& options, const Tensor& rows) {
        ClassShardedHead head(options, group);
        auto features = rows.detach().clone().requires_grad_();
        const auto loss = head.loss(features, targets, sizes);
        loss.backward();
        return std::vector{loss.detach(), features.grad(), head.parameter().tensor.grad(),
                           head.top_k(features, 3, sizes).scores};
      };
      const auto biased =
          gradients_of({.classes = kClasses, .dim = kDim, .scoring = linear_softmax(), .dtype = at::kDouble}, own);
      const auto plain =
          gradients_of({.classes = kClasses, .dim = kDim + 1, .scoring = plain_softmax(), .dtype = at::kDouble},
                       at::cat({own, one}, 1));
      EXPECT_EQ(biased[2].size(1), kDim + 1);
      EXPECT_TRUE(biased[1].equal(plain[1].slice(1, 0, kDim)));
      for (const size_t i : {0, 2, 3}) EXPECT_TRUE(biased[i].equal(plain[i])) << i;
    });
  }
}

TEST(Head, MoreRanksThanClasses) {
  comm::run_ranks(4, [](comm::ProcessGroup& group) {
    ClassShardedHead head({.classes = 3, .dim = kDim, .dtype = at::kDouble}, group);
    const std::vector<int64_t> sizes = {2, 0, 1, 0};
    auto features = at::ones({sizes[group.rank()], kDim}, at::kDouble).requires_grad_();
    const auto loss = head.loss(features, at::full({sizes[group.rank()]}, 2, at::kLong), sizes);
    loss.backward();
    EXPECT_TRUE(std::isfinite(loss.item<double>()));
    EXPECT_EQ(head.top_k(features.detach(), 2, sizes).classes.size(0), sizes[group.rank()]);
  });
}

TEST(Head, TopKEqualsOneDevice) {
  constexpr double kScale = 7;
  const auto cosines = features_of_all().mm((whole_weight() / whole_weight().norm(2, {1}, true)).t());
  const auto scores = (kScale * cosines / features_of_all().norm(2, {1}, true)).softmax(1);
  const auto [best, classes] = scores.topk(5, 1);
  for (const int world : {1, 2, 3, 4, 5}) {
    comm::run_ranks(world, [&](comm::ProcessGroup& group) {
      // A margin is of the loss alone.
      ClassShardedHead head({.classes = kClasses, .dim = kDim, .scoring = cosface(kScale, 0.3), .dtype = at::kDouble},
                            group);
      const auto sizes = comm::split_sizes(kRows, world);
      const auto [begin, end] = comm::split_range(kRows, world, group.rank());
      const auto found = head.top_k(features_of_all().slice(0, begin, end), 5, sizes);
      EXPECT_TRUE(found.classes.equal(classes.slice(0, begin, end))) << "ranks: " << world;
      EXPECT_TRUE(at::allclose(found.scores, best.slice(0, begin, end), 1e-12, 1e-14)) << "ranks: " << world;
    });
  }
}

TEST(Head, OneSmallCollectiveForTheLoss) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const auto weight = at::ones({5, kDim}, at::kFloat).requires_grad_();
    auto features = at::ones({kRows, kDim}, at::kFloat).requires_grad_();
    group.meter().reset();
    const auto loss =
        sharded_softmax_loss(features, weight, at::zeros({kRows}, at::kLong), 5 * group.rank(), 10, {}, group);
    loss.backward();
    const auto counts = group.meter().counts();
    EXPECT_EQ(counts.size(), 1u);
    EXPECT_EQ(counts.at("all_gather").calls, 1);
    EXPECT_EQ(counts.at("all_gather").bytes, 12 * kRows);  // three floats a row, forward only
  });
}

/// Bytes that the loss of 64 samples and its backward add at their peak, on each of two ranks of 2,000 classes.
std::array<int64_t, 2> peak_of_loss(bool naive) {
  memory::install_meter();
  std::array<int64_t, 2> peaks{};
  comm::run_ranks(2,
                  [&](comm::ProcessGroup& group) {
                    const RankScope rank(10 + group.rank());
                    const CategoryScope scope(Category::activations);
                    ClassShardedHead head({.classes = 4000, .dim = 8, .naive = naive}, group);
                    const auto features = at::ones({32, 8}).requires_grad_(), targets = at::zeros({32}, at::kLong);
                    comm::barrier(group);
                    memory::reset_peak(10 + group.rank());
                    const auto before = memory::account(10 + group.rank()).live_bytes();
                    head.loss(features, targets, std::vector<int64_t>{32, 32}).backward();
                    peaks.at(group.rank()) = memory::account(10 + group.rank()).peak_bytes() - before;
                  },
                  {.threads = 1});
  return peaks;
}

TEST(Head, TheNaiveFormFillsRankZero) {
  // The largest parts of each: products of its 2,000 classes, 512,000 bytes; on rank 0 those of all, 2,048,000.
  EXPECT_EQ(peak_of_loss(/*naive=*/false), (std::array<int64_t, 2>{600968, 600968}));
  EXPECT_EQ(peak_of_loss(/*naive=*/true), (std::array<int64_t, 2>{3594820, 3159176}));
}

using test::text_of;

TEST(Head, NeitherLargeNorSmallScoresOverflow) {
  const auto group = comm::make_single_group();
  const auto targets = at::tensor(std::vector<int64_t>{1, 0, 1}, at::kLong);
  for (const double size : {1e-30, 1e4, 1e15}) {
    auto weight = (at::tensor(std::vector<double>{-1, 1, 0.5}, at::kFloat) * size).unsqueeze(1).requires_grad_();
    auto features = at::tensor(std::vector<double>{-1, 1, 3}, at::kFloat).unsqueeze(1).requires_grad_();
    const auto loss = sharded_softmax_loss(features, weight, targets, 0, 3, {}, *group);
    auto w = weight.detach().clone().requires_grad_(), x = features.detach().clone().requires_grad_();
    const auto wanted = at::cross_entropy_loss(x.mm(w.t()), targets);
    loss.backward();
    wanted.backward();
    EXPECT_TRUE(at::allclose(loss, wanted, 1e-5, 0)) << loss << wanted;
    EXPECT_TRUE(at::allclose(features.grad(), x.grad(), 1e-5, 1e-7 * size)) << features.grad() << x.grad();
    EXPECT_TRUE(at::allclose(weight.grad(), w.grad(), 1e-5, 1e-7)) << weight.grad() << w.grad();
  }
}

TEST(Head, ANumberThatIsNoneReachesTheLoss) {
  const auto group = comm::make_single_group();
  for (const double bad : {std::nan(""), double{INFINITY}}) {
    auto features = at::ones({3, 2}, at::kFloat);
    features[1][1] = bad;
    const auto loss = sharded_softmax_loss(features, at::ones({40, 2}), at::zeros({3}, at::kLong), 0, 40, {}, *group);
    EXPECT_FALSE(std::isfinite(loss.item<double>())) << bad;
  }
}

/// In bfloat16 a product has eight bits; the loss and the direction of the gradients stay. (A filter would not: scores
/// near it change sides.)
TEST(Head, Bfloat16ProductsComeNear) {
  const int64_t classes = 500, rows = 40, dim = 69;
  for (const auto& scoring :
       {plain_softmax(), with(plain_softmax(), 0.5), with(cosface(32, 0.3), 0.1), arcface(32, 0.5), sphereface(3, 1)}) {
    for (const bool operators : {false, true}) {
      comm::run_ranks(2, [&](comm::ProcessGroup& group) {
        leave_to_operators(Kernels::scores, operators);
        const std::vector<int64_t> sizes = {rows / 2, rows / 2};
        auto x = at::empty({rows / 2, dim});
        fill_normal_(x, 1.0, 3, 1 + group.rank());
        const auto targets = at::arange(rows / 2, at::kLong) * 23 + group.rank();
        std::array<Tensor, 2> losses, of_x, of_weight;
        for (const bool bf16 : {false, true}) {
          ClassShardedHead head({classes, dim, scoring, false, {50'000, 64, bf16}}, group);
          auto features = x.clone().requires_grad_();
          losses[bf16] = head.loss(features, targets, sizes);
          losses[bf16].backward();
          of_x[bf16] = features.grad().flatten();
          of_weight[bf16] = head.parameter().tensor.grad().flatten();
        }
        EXPECT_NEAR(losses[0].item<double>(), losses[1].item<double>(), 2e-3 * losses[0].item<double>());
        EXPECT_GT(at::cosine_similarity(of_x[0], of_x[1], 0).item<double>(), 0.999);
        EXPECT_GT(at::cosine_similarity(of_weight[0], of_weight[1], 0).item<double>(), 0.999);
        leave_to_operators(Kernels::scores, false);
      });
    }
  }
}

/// Backward of a head whose rows `update` takes, on three threads.
void run_with_update(const RowUpdate& update) {
  comm::run_ranks(
      1,
      [&](comm::ProcessGroup& group) {
        ClassShardedHead head({.classes = kClasses, .dim = kDim, .blocks = {0, 2}, .dtype = at::kDouble}, group);
        head.set_row_update(update);
        auto features = features_of_all().clone().requires_grad_();
        head.loss(features, targets_of_all(), std::vector<int64_t>{kRows}).backward();
      },
      {.threads = 3});
}

TEST(Head, ThreadsUpdateRowsWithoutAGraphInTheRanksName) {
  std::mutex mutex;
  int64_t num_rows = 0;
  run_with_update([&](const Rows& rows, const Tensor& gradient) {
    const std::lock_guard lock(mutex);
    num_rows += rows.count;
    EXPECT_FALSE(at::GradMode::is_enabled());
    EXPECT_FALSE(gradient.requires_grad());
    EXPECT_EQ(static_cast<int>(current_context().category), static_cast<int>(Category::activations));
  });
  EXPECT_EQ(num_rows, kClasses);
}

TEST(Head, AnErrorOfAnUpdateReachesTheCaller) {
  const auto text = text_of([] {
    run_with_update([](const Rows& rows, const Tensor&) {
      TORCH_CHECK_VALUE(rows.begin < kClasses / 2, "update: these rows are locked");
    });
  });
  EXPECT_NE(text.find("update: these rows are locked"), std::string::npos) << text;
}

/// The first backward uses up the products that forward kept.
TEST(Head, BackwardMayRunTwice) {
  comm::run_ranks(
      1,
      [](comm::ProcessGroup& group) {
        for (const auto& blocks : {BlockOptions{1 << 20, 0}, BlockOptions{4 * 16 * 8, 2}, BlockOptions{0, 2}}) {
          ClassShardedHead head({.classes = kClasses, .dim = kDim, .blocks = blocks, .dtype = at::kDouble}, group);
          auto features = features_of_all().clone().requires_grad_();
          const auto loss = head.loss(features, targets_of_all(), std::vector<int64_t>{kRows});
          loss.backward({}, true);
          const auto of_features = features.grad().clone(), of_weight = head.parameter().tensor.grad().clone();
          loss.backward();
          EXPECT_TRUE(at::allclose(features.grad(), 2 * of_features, 1e-12, 0));
          EXPECT_TRUE(at::allclose(head.parameter().tensor.grad(), 2 * of_weight, 1e-12, 0));
        }
      },
      {.threads = 3});
}

TEST(Head, RowsThatAreUpdatedInBackwardAreTheGradients) {
  const Oracle oracle(cosface(24, 0.2));
  for (int world = 1; world <= 3; ++world) {
    comm::run_ranks(world, [&](comm::ProcessGroup& group) {
      ClassShardedHead head(
          {.classes = kClasses, .dim = kDim, .scoring = cosface(24, 0.2), .blocks = {0, 2}, .dtype = at::kDouble},
          group);
      const auto whole = head.parameter().tensor.detach().clone();
      const auto sizes = comm::split_sizes(kRows, world);
      const auto [begin, end] = comm::split_range(kRows, world, group.rank());
      auto features = features_of_all().slice(0, begin, end).clone().requires_grad_();
      head.set_row_update([&](const Rows& rows, const Tensor& gradient) {
        rows.of(head.parameter().tensor.detach()).sub_(gradient, 0.1);
      });
      head.loss(features, targets_of_all().slice(0, begin, end).contiguous(), sizes).backward();
      EXPECT_FALSE(head.parameter().tensor.grad().defined());
      const auto classes = comm::split_range(kClasses, world, group.rank());
      const auto expected = whole - 0.1 * oracle.weight.grad().slice(0, classes.first, classes.second);
      EXPECT_TRUE(at::allclose(head.parameter().tensor, expected, 1e-10, 1e-12));
      EXPECT_TRUE(at::allclose(features.grad(), oracle.features.grad().slice(0, begin, end), 1e-10, 1e-12));
    });
  }
}

TEST(Head, BlocksNeedLittleMemory) {
  memory::install_meter();
  const auto group = comm::make_single_group();
  const RankScope rank(20);
  const int64_t classes = 50'000, rows = 256, dim = 32;
  ClassShardedHead head({.classes = classes, .dim = dim}, *group);
  auto features = at::ones({rows, dim}).requires_grad_();
  const auto targets = at::zeros({rows}, at::kLong);
  const auto before = memory::account(20).live_bytes();
  memory::reset_peak(20);
  head.loss(features, targets, std::vector<int64_t>{rows}).backward();
  const auto extra = memory::account(20).peak_bytes() - before - classes * dim * 4;  // without the weight's gradient
  EXPECT_LT(extra, classes * 4 + (5 << 20));  // 1/|w|, a block, copies of the features; all scores are 51 MB
}

TEST(Head, FaultsAreNamed) {
  const auto group = comm::make_single_group();
  ClassShardedHead head({.classes = 3, .dim = 2}, *group);
  const std::vector<int64_t> sizes = {2};
  const auto features = at::ones({2, 2});
  const auto out_of_range =
      "softmax loss: targets[1] is 3, which no rank's classes hold: write -1 to leave a row out, "
      "or raise classes";
  EXPECT_EQ(text_of([&] {
              head.loss(features, at::tensor(std::vector<int64_t>{0, 3}, at::kLong), sizes);
            }),
            out_of_range);
  ClassShardedHead naive({.classes = 3, .dim = 2, .naive = true}, *group);
  EXPECT_EQ(text_of([&] {
              naive.loss(features, at::tensor(std::vector<int64_t>{0, 3}, at::kLong), sizes);
            }),
            out_of_range);
  EXPECT_EQ(text_of([&] {
              head.loss(at::ones({2, 5}), at::tensor(std::vector<int64_t>{0, 1}, at::kLong), sizes);
            }),
            "softmax loss: features are [2, 5] and weight [3, 2], wanted [N, D] and [C_local, D]");
  EXPECT_EQ(text_of([&] { head.loss(features, at::ones({2}), sizes); }),
            "softmax loss: targets are Float, wanted int64");
  EXPECT_EQ(text_of([&] { head.top_k(features, 4, sizes); }), "head: k is 4, wanted 1..3");
  EXPECT_EQ(text_of([&] { ClassShardedHead({.classes = 0, .dim = 2}, *group); }),
            "head: classes is 0, wanted 1 or more");
}

}  // namespace
}  // namespace tandem::classifier
