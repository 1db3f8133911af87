#include "tandem/kernels/grid/target_bodies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "tests/kernels/grids.h"
#include "tests/kernels/target_case.h"

namespace tandem::kernels {
namespace {

using Real = long double;

template <class T>
constexpr double kNear = sizeof(T) == 4 ? 2e-6 : 1e-14;

template <class Test>
void for_every_case(const Test& test) {
  for (const int threads : kGridThreads) {
    for (const int64_t count : {0, 1, 7, 50}) {
      test(HostGrid(threads), TargetCase<float>(count));
      test(HostGrid(threads), TargetCase<double>(count));
      test(HostGrid(threads), TargetCase<uint16_t>(count));
    }
  }
}

/// Nothing but the targets' entries, and some of their numbers, may differ.
template <class S>
void expect_rest_kept(TargetCase<S> own, TargetCase<S> before,
                      const std::vector<double TargetNumbers::*>& numbers = {}) {
  for (int64_t i = 0; i < own.count(); ++i) {
    own.stored(i) = before.stored(i);
    for (const auto number : numbers) own.targets[i].*number = before.targets[i].*number;
  }
  EXPECT_EQ(own.products, before.products);
  EXPECT_EQ(flat(own.targets), flat(before.targets));
}

template <class S>
void score(HostGrid grid, TargetCase<S>& own, const Margin& margin, bool has_product = false) {
  auto entries = own.entries();
  if (has_product) entries.block.products = nullptr;
  grid.for_each(own.count(), ScoreTargetBody<AbnNumber<S>, S>{entries, own.targets.data(), margin,
                                                              TargetCase<S>::kScale, has_product});
}

const std::vector<Margin> kMargins = {
    {},
    {.cosine = 0.35},
    {.angle = 0.5},
    {.factor = 4, .softening = 5},
    {.factor = 1.5, .angle = 0.7, .cosine = 0.2, .softening = 0.5},
};

Real value_of(const Margin& margin, Real score, Real size) {
  Real turns = 0, phi = margin.factor * std::acos(score / size) + margin.angle;
  for (; phi > std::numbers::pi_v<Real>; phi -= std::numbers::pi_v<Real>) ++turns;
  const Real marginal = std::cos(phi) - 2 * turns - margin.cosine;
  return size * (margin.softening * score / size + marginal) / (1 + margin.softening);
}

void expect_value(const TargetNumbers& target, const Margin& margin, Real size) {
  constexpr Real kStep = 1e-6L;
  const Real score = target.score, wider = size * std::exp(kStep), narrower = size * std::exp(-kStep);
  const auto slope = (value_of(margin, score + kStep, size) - value_of(margin, score - kStep, size)) / (2 * kStep);
  const auto radial = (value_of(margin, score, wider) - value_of(margin, score, narrower)) / (2 * kStep);
  EXPECT_NEAR(target.score, target.product * target.factor, 1e-15);
  EXPECT_NEAR(target.value, static_cast<double>(value_of(margin, score, size)), 1e-13);
  EXPECT_NEAR(target.slope, static_cast<double>(slope), 1e-8);
  EXPECT_NEAR(target.radial, static_cast<double>(radial), 1e-7);
}

TEST(TargetBodies, ValuesAndDerivativesAreThoseOfTheMargin) {
  for_every_case([]<class S>(HostGrid grid, const TargetCase<S>& before) {
    for (const auto& margin : kMargins) {
      auto own = before;
      score(grid, own, margin);
      for (int64_t i = 0; i < own.count(); ++i) {
        EXPECT_EQ(own.targets[i].product, own.product(i));
        EXPECT_EQ(own.targets[i].factor, own.factor(i));
        expect_value(own.targets[i], margin, own.size(i));
      }
      EXPECT_EQ(own.products, before.products);
      expect_rest_kept(own, before,
                       {&TargetNumbers::product, &TargetNumbers::factor, &TargetNumbers::score, &TargetNumbers::value,
                        &TargetNumbers::slope, &TargetNumbers::radial});
    }
  });
}

TEST(TargetBodies, AKnownProductIsNotReadFromTheBlock) {
  for_every_case([]<class S>(HostGrid grid, const TargetCase<S>& before) {
    auto own = before;
    score(grid, own, kMargins[2], true);
    for (int64_t i = 0; i < own.count(); ++i) {
      EXPECT_EQ(own.targets[i].product, before.targets[i].product);
      expect_value(own.targets[i], kMargins[2], own.size(i));
    }
  });
}

TEST(TargetBodies, ADetachedMarginIsAConstant) {
  for_every_case([]<class S>(HostGrid grid, TargetCase<S> own) {
    const Margin margin = {.angle = 0.5, .gradient = TargetGradient::detached};
    score(grid, own, margin);
    for (int64_t i = 0; i < own.count(); ++i) {
      const auto& target = own.targets[i];
      EXPECT_NEAR(target.value, static_cast<double>(value_of(margin, target.score, own.size(i))), 1e-13);
      EXPECT_EQ(target.slope, 1);
      EXPECT_NEAR(target.radial, target.value - target.score, 1e-13);
    }
  });
}

TEST(TargetBodies, CosinesThatRoundingMakesTooLargeAndLengthsOfZeroStayFinite) {
  TargetCase<double> own(3);
  for (int64_t i = 0; i < 3; ++i) own.stored(i) = (i == 1 ? -1.001 : 1.001) * own.size(i) / own.factor(i);
  own.targets[2].feature_length = 0;
  score(HostGrid(), own, {.angle = 0.5});
  EXPECT_NEAR(own.targets[0].value, own.size(0) * std::cos(0.5), 1e-14);
  EXPECT_NEAR(own.targets[1].value, own.size(1) * (std::cos(0.5) - 2), 1e-14);
  EXPECT_EQ(own.targets[2].value, 0);
  for (const double number : flat(own.targets)) EXPECT_TRUE(std::isfinite(number));
}

TEST(TargetBodies, ValuesAreWrittenAsProducts) {
  for_every_case([]<class S>(HostGrid grid, const TargetCase<S>& before) {
    for (const bool leaves_out : {false, true}) {
      auto own = before;
      grid.for_each(own.count(), PutTargetBody<AbnNumber<S>, S>{own.entries(), own.targets.data(), leaves_out});
      for (int64_t i = 0; i < own.count(); ++i) {
        const Real score = Real{own.product(i)} * own.factor(i);
        const double wanted = leaves_out ? kLeftOutScore : before.targets[i].value;
        EXPECT_NEAR(static_cast<double>(score - wanted), 0, 0.51 * kUnit<S> * std::abs(wanted));
        if (leaves_out) {
          EXPECT_EQ(own.targets[i].left_out, own.product(i) * static_cast<double>(own.factor(i)));
        }
      }
      expect_rest_kept(own, before, {&TargetNumbers::left_out});
      if (!leaves_out) {
        EXPECT_EQ(flat(own.targets), flat(before.targets));
      }
    }
  });
}

/// Sums of rows, of which every fifth has no class yet; the maximum is below the target's value, or above.
template <class T>
struct Sums {
  explicit Sums(int64_t columns) : maximum(drawn_as<T>(11, columns, 4)), sum(drawn_as<T>(12, columns, 1)) {
    for (auto& s : sum) s += 2;
    for (int64_t c = 0; c < columns; c += 5) {
      maximum[c] = std::numeric_limits<T>::lowest();
      sum[c] = 0;
    }
  }

  std::vector<T> maximum, sum, total = drawn_as<T>(13, static_cast<int64_t>(sum.size()), 9);
};

TEST(TargetBodies, TargetsThatWereLeftOutAreAddedToTheSums) {
  for_every_case([]<class S>(HostGrid grid, const TargetCase<S>& of) {
    using T = AbnNumber<S>;
    for (const bool has_total : {false, true}) {
      const Sums<T> before(of.columns);
      auto own = before;
      const RunningRows<T> running{own.maximum.data(), own.sum.data(), has_total ? own.total.data() : nullptr};
      grid.for_each(of.count(), AddTargetBody<T>{of.rows.data(), of.targets.data(), running});
      for (int64_t i = 0; i < of.count(); ++i) {
        const int64_t row = of.rows[i];
        const Real value = of.targets[i].value, left_out = of.targets[i].left_out;
        const Real sum = before.sum[row] * std::exp(Real{before.maximum[row]}) + std::exp(value);
        const Real total = before.total[row] - left_out + value;
        EXPECT_EQ(own.maximum[row], std::max(before.maximum[row], static_cast<T>(value)));
        EXPECT_NEAR(own.sum[row], static_cast<double>(sum / std::exp(Real{own.maximum[row]})), kNear<T>);
        EXPECT_NEAR(own.total[row], has_total ? static_cast<double>(total) : before.total[row], kNear<T>);
        own.maximum[row] = before.maximum[row];
        own.sum[row] = before.sum[row];
        own.total[row] = before.total[row];
      }
      EXPECT_EQ(own.maximum, before.maximum);
      EXPECT_EQ(own.sum, before.sum);
      EXPECT_EQ(own.total, before.total);
    }
  });
}

TEST(TargetBodies, ALineTakesTheValues) {
  for_every_case([]<class S>(HostGrid grid, const TargetCase<S>& of) {
    using T = AbnNumber<S>;
    std::vector<T> line(of.columns, 7), wanted = line;
    grid.for_each(of.count(), TargetLineBody<T>{of.rows.data(), of.targets.data(), line.data()});
    for (int64_t i = 0; i < of.count(); ++i) wanted[of.rows[i]] = static_cast<T>(of.targets[i].value);
    EXPECT_EQ(line, wanted);
  });
}

TEST(TargetBodies, GradientsAreThoseOfTheLoss) {
  for_every_case([]<class S>(HostGrid grid, const TargetCase<S>& before) {
    using T = AbnNumber<S>;
    auto own = before;
    const auto others = drawn_as<double>(21, own.columns, 3);  // log of the sum over the other classes
    const auto share = drawn_as<T>(22, own.columns, 1), floor = drawn_as<T>(23, own.columns, 0.1);
    const double smoothing = 0.2;
    const auto log_sum = [&](int64_t row, Real value) {
      return std::log(std::exp(Real{others[row]}) + std::exp(value));
    };
    std::vector<T> log_sums(own.columns);
    for (int64_t i = 0; i < own.count(); ++i) {
      log_sums[own.rows[i]] = static_cast<T>(log_sum(own.rows[i], own.targets[i].value));
    }
    grid.for_each(own.count(),
                  TargetGradientBody<T>{
                      own.rows.data(), own.targets.data(), {log_sums.data(), share.data(), floor.data()}, smoothing});
    for (int64_t i = 0; i < own.count(); ++i) {
      const int64_t row = own.rows[i];
      const auto loss = [&](Real value) {
        return share[row] * (log_sum(row, value) - (1 - Real{smoothing}) * value) - floor[row] * value;
      };
      const Real value = own.targets[i].value, step = 1e-5L;
      const Real wanted = (loss(value + step) - loss(value - step)) / (2 * step);
      EXPECT_NEAR(own.targets[i].gradient, static_cast<double>(wanted), 1e-10 + kNear<T>);
    }
    expect_rest_kept(own, before, {&TargetNumbers::gradient});
  });
}

TEST(TargetBodies, EntriesAreReadAndCleared) {
  for_every_case([]<class S>(HostGrid grid, const TargetCase<S>& before) {
    auto own = before;
    grid.for_each(own.count(), ReadTargetGradientBody<AbnNumber<S>, S>{own.entries(), own.targets.data()});
    EXPECT_EQ(own.products, before.products);
    for (int64_t i = 0; i < own.count(); ++i) EXPECT_EQ(own.targets[i].gradient, own.product(i));
    grid.for_each(own.count(), ClearTargetBody<AbnNumber<S>, S>{own.entries()});
    for (int64_t i = 0; i < own.count(); ++i) EXPECT_EQ(own.stored(i), S{});
    expect_rest_kept(own, before, {&TargetNumbers::gradient});
  });
}

template <class S>
void expect_gradients_put(HostGrid grid, const TargetCase<S>& before, bool of_features, bool of_weight) {
  using T = AbnNumber<S>;
  auto own = before;
  for (int64_t i = 0; i < own.count(); i += 6) {  // zeros without a direction
    own.targets[i].feature_length = own.targets[i].weight_length = own.targets[i].radial = 0;
  }
  std::vector<T> classes = drawn_as<T>(31, own.block_rows, 1);
  std::vector<double> rows = drawn_as<double>(32, own.columns, 1);
  std::vector<Real> wanted_classes(classes.begin(), classes.end()), wanted_rows(rows.begin(), rows.end());
  const auto entries = own.entries();
  grid.for_each(own.class_count(), PutTargetGradientBody<T, S>{entries, own.targets.data(), own.starts.data(),
                                                               of_features, of_weight, classes.data(), rows.data()});
  for (int64_t i = 0; i < own.count(); ++i) {
    const auto& target = own.targets[i];
    const Real gradient = target.gradient, of_score = gradient * target.slope, x = target.feature_length,
               w = target.weight_length;
    const auto product = static_cast<double>(of_score * own.factor(i));
    EXPECT_NEAR(own.product(i), product, 0.51 * kUnit<S> * std::abs(product) + 1e-15);
    const auto along = [&](bool is_normalised, Real length) {
      if (is_normalised) return of_score * target.score;
      return length == 0 ? 0 : gradient * target.radial / length / length;
    };
    wanted_classes[own.places[i] - own.kFirst] += along(of_weight, w);
    wanted_rows[own.rows[i]] += along(of_features, x);
  }
  for (int64_t c = 0; c < own.block_rows; ++c)
    EXPECT_NEAR(classes[c], static_cast<double>(wanted_classes[c]), 10 * kNear<T>);
  for (int64_t r = 0; r < own.columns; ++r) EXPECT_NEAR(rows[r], static_cast<double>(wanted_rows[r]), 1e-14);
  auto given = before;
  given.targets = own.targets;
  expect_rest_kept(own, given);
}

TEST(TargetBodies, GradientsArePutIntoABlock) {
  for_every_case([]<class S>(HostGrid grid, const TargetCase<S>& before) {
    for (const bool of_features : {false, true}) {
      for (const bool of_weight : {false, true}) expect_gradients_put(grid, before, of_features, of_weight);
    }
  });
}

}  // namespace
}  // namespace tandem::kernels
