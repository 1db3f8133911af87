#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tandem/kernels/grid/score_grid.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

template <class T>
constexpr double kNear = sizeof(T) == 4 ? 1e-5 : 1e-13;

template <class S>
struct Scores {
  using T = AbnNumber<S>;

  int64_t rows, columns;
  std::vector<S> products = drawn_as<S>(1, rows* columns, 2);
  std::vector<T> factors = drawn_as<T>(2, rows, 3);
  std::vector<T> maximum = std::vector<T>(columns, std::numeric_limits<T>::lowest());
  std::vector<T> sum = std::vector<T>(columns), total = sum;
  std::vector<T> log_sum = drawn_as<T>(3, columns, 2), share = drawn_as<T>(4, columns, 1),
                 floor = drawn_as<T>(5, columns, 0.1), along_samples = drawn_as<T>(6, columns, 1);
  std::vector<T> along_classes = std::vector<T>(rows, -1);

  Block<T, S> block(int64_t first, int64_t end) {
    return {products.data() + first * columns, factors.data() + first, end - first, columns};
  }
  RunningRows<T> running() { return {maximum.data(), sum.data(), total.data()}; }
  ShareRows<T> shares() const { return {log_sum.data(), share.data(), floor.data()}; }
  double score(int64_t i) const { return static_cast<double>(widened(products[i])) * factors[i / columns]; }
};

template <class S>
void expect_sums(HostGrid grid, int64_t rows, int64_t columns) {
  using T = AbnNumber<S>;
  Scores<S> own{rows, columns};
  Scratch scratch(score_scratch<T>(rows, columns));
  const int64_t part = rows / 3;
  add_block_on(grid, own.block(0, part), own.running(), scratch.get());
  add_block_on(grid, own.block(part, rows), own.running(), scratch.get());
  for (int64_t c = 0; c < columns; ++c) {
    double maximum = std::numeric_limits<T>::lowest(), sum = 0, total = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double score = own.score(r * columns + c);
      maximum = std::max(maximum, score);
      sum += std::exp(score);
      total += score;
    }
    EXPECT_NEAR(own.maximum[c], maximum, kNear<T>);
    EXPECT_NEAR(own.sum[c], rows == 0 ? 0 : sum * std::exp(-double{own.maximum[c]}), kNear<T> * (1 + own.sum[c]));
    EXPECT_NEAR(own.total[c], total, kNear<T> * static_cast<double>(rows));
  }
}

TEST(ScoreBodies, SumsOfBlocksAreThoseOfAllClasses) {
  for (const int threads : kGridThreads) {
    for (const int64_t columns : {1, 16, 17, 48}) {
      for (const int64_t rows : kOddSizes) {
        expect_sums<float>(HostGrid(threads), rows, columns);
        expect_sums<double>(HostGrid(threads), rows, columns);
        expect_sums<uint16_t>(HostGrid(threads), rows, columns);
      }
    }
  }
  expect_sums<double>(HostGrid(), 5003, 16);  // in several chunks
}

TEST(ScoreBodies, TotalsAreLeftOutWhereNobodyWantsThem) {
  HostGrid grid;
  Scores<float> own{3, 16};
  add_block_on(grid, own.block(0, 3), RunningRows<float>{own.maximum.data(), own.sum.data(), nullptr}, nullptr);
  EXPECT_GT(own.sum[0], 1);
}

template <class S>
void expect_gradient_of_the_cpu(HostGrid grid, int64_t rows, int64_t columns, AbnNumber<S> filter) {
  using T = AbnNumber<S>;
  Scores<S> own{rows, columns}, cpu = own;
  Scratch scratch(score_scratch<T>(rows, columns));
  differentiate_block_on(grid, own.block(0, rows), own.shares(), filter, own.along_classes.data(),
                         own.along_samples.data(), scratch.get());
  differentiate_block(cpu.block(0, rows), cpu.shares(), filter, cpu.along_classes.data(), cpu.along_samples.data());
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double gradient = widened(cpu.products[i]), rounding = sizeof(S) == 2 ? kUnit<S> * std::abs(gradient) : 0;
    EXPECT_NEAR(widened(own.products[i]), gradient, kNear<T> + rounding);
  }
  for (int64_t r = 0; r < rows; ++r) EXPECT_NEAR(own.along_classes[r], cpu.along_classes[r], kNear<T> * 40);
  for (int64_t c = 0; c < columns; ++c) {
    EXPECT_NEAR(own.along_samples[c], cpu.along_samples[c], kNear<T> * (1 + static_cast<double>(rows)));
  }
}

TEST(ScoreBodies, GradientsAreThoseOfTheCpu) {
  for (const int threads : kGridThreads) {
    for (const int64_t columns : {16, 48}) {
      for (const int64_t rows : kOddSizes) {
        for (const float filter : {std::numeric_limits<float>::infinity(), 1.5F}) {
          expect_gradient_of_the_cpu<float>(HostGrid(threads), rows, columns, filter);
          expect_gradient_of_the_cpu<double>(HostGrid(threads), rows, columns, filter);
          expect_gradient_of_the_cpu<uint16_t>(HostGrid(threads), rows, columns, filter);
        }
      }
    }
  }
}

TEST(ScoreBodies, GradientsEqualTheirDefinition) {
  HostGrid grid;
  Scores<double> own{17, 19};
  const auto before = own;
  std::vector<double> along_classes(17), along_samples = own.along_samples;
  differentiate_block_on(grid, own.block(0, 17), own.shares(), 2.5, own.along_classes.data(), own.along_samples.data(),
                         nullptr);
  for (int64_t i = 0; i < 17 * 19; ++i) {
    const int64_t c = i % 19;
    const double score = before.score(i);
    const double share = own.share[c] * std::exp(std::min(score - own.log_sum[c], 0.0)) - own.floor[c];
    const double gradient = score > 2.5 ? 0 : share;
    EXPECT_NEAR(own.products[i], gradient * own.factors[i / 19], 1e-14);
    along_classes[i / 19] += gradient * score;
    along_samples[c] += gradient * score;
  }
  for (int64_t r = 0; r < 17; ++r) EXPECT_NEAR(own.along_classes[r], along_classes[r], 1e-13);
  for (int64_t c = 0; c < 19; ++c) EXPECT_NEAR(own.along_samples[c], along_samples[c], 1e-13);
}

}  // namespace
}  // namespace tandem::kernels
