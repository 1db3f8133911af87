#include "tandem/kernels/grid/exponent_bodies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tandem/kernels/grid/score_grid.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

/// Scores [classes, samples] in tiles of classes, with what the passes make of them.
template <class S>
struct Tiles {
  using T = AbnNumber<S>;

  int64_t samples;
  std::vector<int64_t> ends;  // of the tiles
  std::vector<S> products;
  std::vector<T> factors;
  std::vector<double> scores = {};
  std::vector<int32_t> exponents = {}, exponent = {};  // [tiles, samples]; [samples]
  std::vector<T> sum = {}, log_sum = {};

  int64_t classes() const { return ends.back(); }
  int64_t first(size_t tile) const { return tile == 0 ? 0 : ends[tile - 1]; }
  ExponentRows<T> running() { return {exponent.data(), sum.data()}; }

  void run(HostGrid grid) {
    for (int64_t i = 0; i < classes() * samples; ++i) {
      scores.push_back(double{widened(products[i])} * factors[i / samples]);
    }
    exponents.resize(ends.size() * samples);
    exponent.assign(samples, -kFarExponent);
    sum.resize(samples);
    log_sum.resize(samples);
    for (size_t tile = 0; tile < ends.size(); ++tile) {
      const int64_t begin = first(tile), rows = ends[tile] - begin;
      Scratch scratch(score_scratch<T>(rows, samples));
      exponentiate_block_on(grid, Block<T, S>{products.data() + begin * samples, factors.data() + begin, rows, samples},
                            exponents.data() + tile * samples, running(), scratch.get());
    }
    for (int64_t i = 0; i < samples; ++i) {
      log_sum[i] = static_cast<T>(std::log(2.0) * (exponent[i] + std::log2(static_cast<double>(sum[i]))));
    }
  }

  /// Of every score, and that they add to 1.
  void expect_probabilities(HostGrid grid) const {
    std::vector<double> total(samples), whole(samples);
    std::vector<T> share(samples), scale(samples);
    for (int64_t i = 0; i < samples; ++i) share[i] = static_cast<T>(1 + i % 3);
    for (size_t tile = 0; tile < ends.size(); ++tile) {
      grid.for_each(samples,
                    TileScaleBody<T>{exponents.data() + tile * samples, log_sum.data(), share.data(), scale.data()});
      for (int64_t i = first(tile) * samples; i < ends[tile] * samples; ++i) {
        const int64_t c = i % samples;
        const double own = double{scale[c]} * widened(products[i]) / share[c], wanted = probability(i);
        EXPECT_NEAR(own, wanted, tolerance() * wanted + 1e-37) << "score " << scores[i];
        total[c] += own;
      }
    }
    for (const double sum : total) EXPECT_NEAR(sum, 1, exactness());
  }

  double log_sum_of(int64_t sample) const {
    double most = scores[sample], sum = 0;
    for (int64_t r = 0; r < classes(); ++r) most = std::max(most, scores[r * samples + sample]);
    for (int64_t r = 0; r < classes(); ++r) sum += std::exp(scores[r * samples + sample] - most);
    return most + std::log(sum);
  }
  double probability(int64_t i) const { return std::exp(scores[i] - log_sum_of(i % samples)); }

  /// Of arithmetic, which knows a score and a log_sum to their last place.
  double exactness() const {
    double most = 8;
    for (const double score : scores) most = std::max(most, std::abs(score));
    return 4 * kUnit<T> * most;
  }
  double tolerance() const { return exactness() + (sizeof(S) == 2 ? kUnit<S> : 0); }

  void expect_log_sums() const {
    const double rounding = sizeof(S) == 2 ? kUnit<S> / 2 : 0;  // of E
    for (int64_t c = 0; c < samples; ++c) EXPECT_NEAR(log_sum[c], log_sum_of(c), exactness() + rounding);
  }
};

template <class S>
Tiles<S> drawn_tiles(int64_t samples, const std::vector<int64_t>& ends, double factor) {
  Tiles<S> tiles{samples, ends, drawn_as<S>(1, ends.back() * samples, 1), {}};
  tiles.factors.assign(ends.back(), static_cast<AbnNumber<S>>(factor));
  return tiles;
}

template <class S>
void expect_softmax(int threads, Tiles<S> tiles) {
  const HostGrid grid(threads);
  tiles.run(grid);
  tiles.expect_log_sums();
  tiles.expect_probabilities(grid);
}

template <class S>
void expect_softmax_of_all_sizes(int threads) {
  for (const int64_t samples : {1, 16, 17, 48}) {
    for (const double factor : {1.0, 64.0, -64.0, 1e-3, 2e3}) {
      expect_softmax(threads, drawn_tiles<S>(samples, {1}, factor));
      expect_softmax(threads, drawn_tiles<S>(samples, {3, 20, 21}, factor));
    }
  }
  expect_softmax(threads, drawn_tiles<S>(16, {257, 512}, 8));
}

TEST(ExponentBodies, GiveTheSoftmaxOfAllTiles) {
  for (const int threads : kGridThreads) {
    expect_softmax_of_all_sizes<float>(threads);
    expect_softmax_of_all_sizes<double>(threads);
    expect_softmax_of_all_sizes<uint16_t>(threads);
  }
}

/// One class at 64 and one at -64, in either order, and columns of padding, where all products are 0.
TEST(ExponentBodies, HoldFarScoresAndPaddedColumns) {
  for (const int threads : kGridThreads) {
    Tiles<uint16_t> tiles{16, {1, 2, 5}, std::vector<uint16_t>(5 * 16), std::vector<float>(5, 64)};
    for (const int64_t i : {0, 17}) tiles.products[i] = stored_as<uint16_t>(1);
    for (const int64_t i : {1, 16}) tiles.products[i] = stored_as<uint16_t>(-1);
    expect_softmax(threads, tiles);
  }
}

TEST(ExponentBodies, EqualScoresHaveEqualShares) {
  for (const double score : {-64.0, 0.0, 1.0, 64.0, 1e6}) {
    Tiles<float> tiles{16, {4, 8}, std::vector<float>(8 * 16, static_cast<float>(score)), std::vector<float>(8, 1)};
    expect_softmax(1, tiles);
  }
}

/// Finite, whatever the scores are.
TEST(ExponentBodies, ExtremeScoresStayFinite) {
  HostGrid grid;
  Tiles<float> tiles{16, {2, 4}, std::vector<float>(4 * 16, 1e8F), std::vector<float>(4, 1)};
  for (size_t i = 0; i < 16; ++i) tiles.products[i] = -1e8F;
  tiles.run(grid);
  for (int64_t c = 0; c < 16; ++c) {
    EXPECT_EQ(tiles.exponents[c], tiles.exponents[16 + c]);  // each tile has a score of 1e8
    EXPECT_EQ(widened(tiles.products[c]), 0);
    EXPECT_NEAR(tiles.log_sum[c], 1e8, 16);
  }
}

TEST(ExponentBodies, ExponentsOfScoresBeyondAreHeldBack) {
  HostGrid grid;
  Tiles<float> tiles{2, {1}, {1e30F, -1e30F}, {1}};
  tiles.run(grid);
  EXPECT_EQ(tiles.exponents, (std::vector<int32_t>{kFarExponent, -kFarExponent}));
}

template <class T>
void expect_exact_exponentials(HostGrid grid) {
  const auto scores = drawn_as<T>(1, 1000, 64);
  auto products = scores;
  const T one = 1;
  std::vector<int32_t> exponents(1000), exponent(1000, -kFarExponent);
  std::vector<T> sum(1000);
  exponentiate_block_on(grid, Block<T, T>{products.data(), &one, 1, 1000}, exponents.data(),
                        ExponentRows<T>{exponent.data(), sum.data()}, nullptr);
  for (int i = 0; i < 1000; ++i) {
    const long double power = scores[i] / std::log(2.0L) - exponents[i];
    EXPECT_NEAR(products[i], static_cast<double>(std::exp2(power)), 2 * kUnit<T>) << scores[i];
    EXPECT_GE(products[i], T(0.5));
    EXPECT_LE(products[i], 1 + kUnit<T>);
  }
}

TEST(ExponentBodies, AreExactToTheirLastPlaces) {
  expect_exact_exponentials<float>(HostGrid());
  expect_exact_exponentials<double>(HostGrid());
}

/// Tiles in another order merge to the same sum.
TEST(ExponentBodies, MergingRoundsNothingButTheSum) {
  HostGrid grid;
  Tiles<float> tiles{1, {1, 2, 3}, {-100, 60, 0}, {1, 1, 1}}, other{1, {1, 2, 3}, {0, -100, 60}, {1, 1, 1}};
  tiles.run(grid);
  other.run(grid);
  EXPECT_EQ(tiles.log_sum, other.log_sum);
  EXPECT_EQ(tiles.exponent, other.exponent);
  EXPECT_EQ(tiles.exponent[0], 87);  // 60 log2(e) = 86.6
}

}  // namespace
}  // namespace tandem::kernels
