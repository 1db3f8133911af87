#include <gtest/gtest.h>

#include <vector>

#include "tandem/kernels/grid/abn_grid.h"
#include "tests/kernels/definitions.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

constexpr std::array kKinds = {Invertible::identity, Invertible::leaky_relu, Invertible::elu, Invertible::swish};

/// What two roundings of an inverse of z differ by.
template <class S>
constexpr double kNear = sizeof(S) == 8 ? 1e-11 : 2e-4;

template <class S>
struct Rows {
  using T = AbnNumber<S>;

  int64_t rows, channels;
  std::vector<S> z = drawn_as<S>(1, rows*channels, 5), gradient = drawn_as<S>(2, rows*channels, 1);
  std::vector<T> scale = drawn_as<T>(3, channels, 2), offset = drawn_as<T>(4, channels, 1);
  std::vector<T> factor = drawn_as<T>(5, channels, 1), slope = drawn_as<T>(6, channels, 1e-3),
                 shift = drawn_as<T>(7, channels, 1);
  std::vector<uint8_t> sides = std::vector<uint8_t>(rows * side_bytes(channels));
  std::vector<double> sum = std::vector<double>(channels, -1), product = sum;

  AbnForward<T> forward(Invertible kind) const { return {kind, T(kSlope), scale.data(), offset.data()}; }
  AbnApply<T> apply() const { return {factor.data(), slope.data(), shift.data()}; }
  AbnBackward<S> backward(Invertible kind) const {
    return {kind, T(kSlope), z.data(), gradient.data(), sides.data(), offset.data()};
  }
  bool is_right(int64_t i) const {
    return (sides[i / channels * side_bytes(channels) + i % channels / 8] >> (i % channels % 8) & 1) != 0;
  }
};

template <class S>
Rows<S> on_cpu(Invertible kind, int64_t rows, int64_t channels) {
  Rows<S> all{rows, channels};
  abn_forward<S>(all.forward(kind), rows, channels, all.z.data(), all.sides.data());
  return all;
}

/// [rows, channels] of S: the grid's results beside those of the CPU's kernels.
template <class S>
void expect_forward_of_the_cpu(HostGrid grid, Invertible kind, int64_t rows, int64_t channels) {
  const auto cpu = on_cpu<S>(kind, rows, channels);
  Rows<S> own{rows, channels};
  abn_forward_on(grid, own.forward(kind), rows, channels, own.z.data(), own.sides.data());
  for (int64_t i = 0; i < rows * channels; ++i) {
    EXPECT_NEAR(widened(own.z[i]), widened(cpu.z[i]), 16 * kUnit<S>) << i;
    EXPECT_EQ(own.is_right(i), cpu.is_right(i)) << i;
  }
}

template <class S>
void expect_backward_of_the_cpu(HostGrid grid, Invertible kind, int64_t rows, int64_t channels) {
  auto cpu = on_cpu<S>(kind, rows, channels), own = cpu;
  const auto in = cpu.backward(kind);
  Scratch scratch(abn_scratch(rows, channels));
  abn_gradient_sums_on(grid, in, rows, channels, {}, own.sum.data(), own.product.data(), scratch.get());
  for (const bool wide : {false, true}) {  // forms one and two
    abn_gradient_sums(in, wide, rows, channels, cpu.sum.data(), cpu.product.data());
    for (int64_t c = 0; c < channels; ++c) {
      EXPECT_NEAR(own.sum[c], cpu.sum[c], rows * kNear<S> / 10) << wide;
      EXPECT_NEAR(own.product[c], cpu.product[c], rows * kNear<S>) << wide;
    }
  }
  std::vector<S> out(cpu.z.size());
  abn_gradient_apply(in, cpu.apply(), rows, channels, out.data());
  auto over = own.backward(kind);  // over the gradient
  over.gradient = own.gradient.data();
  abn_gradient_apply_on(grid, over, own.apply(), rows, channels, own.gradient.data());
  const double unit = sizeof(S) == 2 ? kUnit<S> * 4 : kNear<S>;
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(widened(own.gradient[i]), widened(out[i]), unit) << i;
}

template <class S>
void expect_the_cpu_on(HostGrid grid, int64_t rows, int64_t channels) {
  for (const auto kind : kKinds) {
    expect_forward_of_the_cpu<S>(grid, kind, rows, channels);
    expect_backward_of_the_cpu<S>(grid, kind, rows, channels);
  }
}

TEST(AbnBodies, EqualTheKernelsOfTheCpuForAnyNumberOfChannels) {
  for (const int threads : kGridThreads) {
    const HostGrid grid(threads);
    for (int64_t channels = 1; channels <= 40; ++channels) {
      expect_the_cpu_on<float>(grid, 13, channels);
      expect_the_cpu_on<double>(grid, 13, channels);
      expect_the_cpu_on<uint16_t>(grid, 13, channels);
    }
  }
}

TEST(AbnBodies, EqualTheKernelsOfTheCpuForAnyNumberOfRows) {
  for (const int64_t rows : kOddSizes) {
    expect_the_cpu_on<float>(HostGrid(), rows, 19);
    expect_the_cpu_on<double>(HostGrid(), rows, 19);
    expect_the_cpu_on<uint16_t>(HostGrid(), rows, 19);
  }
  expect_the_cpu_on<double>(HostGrid(), 5003, 3);  // in several chunks
}

TEST(AbnBodies, EqualTheDefinitions) {
  for (const int threads : kGridThreads) {
    for (const auto kind : kKinds) {
      HostGrid grid(threads);
      Rows<double> all{257, 7};
      const auto x = all.z;
      abn_forward_on(grid, all.forward(kind), 257, 7, all.z.data(), all.sides.data());
      std::vector<double> sum(7), product(7), out(x.size());
      abn_gradient_sums_on(grid, all.backward(kind), 257, 7, {}, all.sum.data(), all.product.data(), nullptr);
      abn_gradient_apply_on(grid, all.backward(kind), all.apply(), 257, 7, out.data());
      for (int64_t i = 0; i < 257 * 7; ++i) {
        const auto c = i % 7;
        const long double y = all.scale[c] * static_cast<long double>(x[i]) + all.offset[c];
        const long double dy = all.gradient[i] * slope_of(kind, y);
        EXPECT_NEAR(all.z[i], static_cast<double>(value_of(kind, y)), 1e-14);
        EXPECT_NEAR(out[i], static_cast<double>(dy * all.factor[c] + (y - all.offset[c]) * all.slope[c] + all.shift[c]),
                    1e-11);
        sum[c] += static_cast<double>(dy);
        product[c] += static_cast<double>(dy * (y - all.offset[c]));
      }
      for (int64_t c = 0; c < 7; ++c) {
        EXPECT_NEAR(all.sum[c], sum[c], 1e-10);
        EXPECT_NEAR(all.product[c], product[c], 1e-9);
      }
    }
  }
}

/// With y and dy over z and the gradient, the identity gives the bits that a second inversion gives.
template <class T>
void expect_unfolding(HostGrid grid, int64_t channels) {
  auto all = on_cpu<T>(Invertible::swish, 13, channels);
  const auto in = all.backward(Invertible::swish);
  std::vector<T> out(all.z.size());
  std::vector<double> sum(channels), product(channels);
  abn_gradient_sums_on(grid, in, 13, channels, {}, sum.data(), product.data(), nullptr);
  abn_gradient_apply_on(grid, in, all.apply(), 13, channels, out.data());
  const AbnUnfolded<T> to{all.z.data(), all.gradient.data()};
  abn_gradient_sums_on(grid, in, 13, channels, to, all.sum.data(), all.product.data(), nullptr);
  auto flat = all.backward(Invertible::identity);
  flat.sides = nullptr;
  abn_gradient_apply_on(grid, flat, all.apply(), 13, channels, all.gradient.data());
  EXPECT_EQ(all.sum, sum);
  EXPECT_EQ(all.product, product);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(all.gradient[i], out[i], 8 * kUnit<T>);
}

TEST(AbnBodies, UnfoldedSwishGivesTheGradientOfTwoInversions) {
  for (const int threads : kGridThreads) {
    for (const int64_t channels : {1, 7, 16, 19, 40}) {
      expect_unfolding<float>(HostGrid(threads), channels);
      expect_unfolding<double>(HostGrid(threads), channels);
    }
  }
}

TEST(AbnBodies, AnEluOfMinusOneCountsAsHalfAUnitAbove) {
  const auto z = stored_as<uint16_t>(-1), gradient = stored_as<uint16_t>(1);
  uint16_t out = 0;
  const float one = 1, zero = 0;
  HostGrid grid;
  abn_gradient_apply_on(grid, AbnBackward<uint16_t>{Invertible::elu, 0, &z, &gradient, nullptr, &zero},
                        {&zero, &one, &zero}, 1, 1, &out);
  EXPECT_NEAR(widened(out), std::log(2e-3), 0.05);
}

}  // namespace
}  // namespace tandem::kernels
