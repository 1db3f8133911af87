#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tandem/kernels/gpu_kernels.h"
#include "tandem/kernels/grid/score_grid.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

/// A block on the host and on the device.
template <class S>
struct BlockPair {
  using T = AbnNumber<S>;

  int64_t rows, columns;
  std::vector<S> products = drawn_as<S>(1, rows* columns, 2);
  std::vector<T> factors = drawn_as<T>(2, rows, 3), share = drawn_as<T>(3, columns, 1);
  DeviceArray<S> own_products{products};
  DeviceArray<T> own_factors{factors}, own_share{share};
  Scratch scratch{score_scratch<T>(rows, columns)};
  DeviceArray<char> own_scratch{std::vector<char>(gpu::score_scratch<T>(rows, columns))};
  HostGrid grid{};

  Block<T, S> block() { return {products.data(), factors.data(), rows, columns}; }
  Block<T, S> own_block() const { return {own_products.get(), own_factors.get(), rows, columns}; }
};

template <class S>
void expect_stored_gradients(int64_t rows, int64_t columns) {
  using T = AbnNumber<S>;
  BlockPair<S> both{rows, columns};
  std::vector<T> maximum(columns, std::numeric_limits<T>::lowest()), sum(columns), total(columns), along(rows);
  const DeviceArray<T> own_maximum(maximum), own_sum(sum), own_total(total), own_along(along), own_samples(both.share);
  add_block_on(both.grid, both.block(), RunningRows<T>{maximum.data(), sum.data(), total.data()}, both.scratch.get());
  expect_started(gpu::add_block<T, S>(both.own_block(), {own_maximum.get(), own_sum.get(), own_total.get()},
                                      both.own_scratch.get(), nullptr));
  expect_near(own_maximum.values(), maximum, 4);
  expect_near(own_sum.values(), sum, 64);
  expect_near(own_total.values(), total, 64);

  auto samples = both.share;
  differentiate_block_on(both.grid, both.block(), ShareRows<T>{maximum.data(), both.share.data(), both.share.data()},
                         T(2), along.data(), samples.data(), both.scratch.get());
  expect_started(gpu::differentiate_block<T, S>(both.own_block(),
                                                {own_maximum.get(), both.own_share.get(), both.own_share.get()}, T(2),
                                                own_along.get(), own_samples.get(), both.own_scratch.get(), nullptr));
  expect_near(own_along.values(), along, 1e3);
  expect_near(own_samples.values(), samples, 1e3);
  expect_near(both.own_products.values(), both.products, 64);
}

template <class S>
void expect_exponentials(int64_t rows, int64_t columns) {
  using T = AbnNumber<S>;
  BlockPair<S> both{rows, columns};
  std::vector<int32_t> exponents(columns), exponent(columns, -kFarExponent);
  std::vector<T> sum(columns), log_sum(columns), scale(columns);
  const DeviceArray<int32_t> own_exponents(exponents), own_exponent(exponent);
  const DeviceArray<T> own_sum(sum), own_log_sum(log_sum), own_scale(scale);
  const ExponentRows<T> running{exponent.data(), sum.data()}, own{own_exponent.get(), own_sum.get()};
  exponentiate_block_on(both.grid, both.block(), exponents.data(), running, both.scratch.get());
  for (int64_t i = 0; i < columns; ++i) log_sum[i] = static_cast<T>(std::log(2.0) * (exponent[i] + std::log2(sum[i])));
  both.grid.for_each(columns, TileScaleBody<T>{exponents.data(), log_sum.data(), both.share.data(), scale.data()});
  expect_started(
      gpu::exponentiate_block<T, S>(both.own_block(), own_exponents.get(), own, both.own_scratch.get(), nullptr));
  expect_started(
      gpu::for_each(TileScaleBody<T>{own_exponents.get(), own_log_sum.get(), both.own_share.get(), own_scale.get()},
                    columns, nullptr));
  EXPECT_EQ(own_exponents.values(), exponents);
  EXPECT_EQ(own_exponent.values(), exponent);
  const double rounding = sizeof(S) == 2 ? 0x1p14 : 0;  // of E, which two machines may round apart
  expect_near(both.own_products.values(), both.products, 64);
  expect_near(own_sum.values(), sum, 64 + rounding);
  expect_near(own_scale.values(), scale, 256 + rounding);
}

TEST_F(GpuKernels, BlocksAreThoseOfTheHost) {
  for (const int64_t rows : {1, 17, 257, 5003}) {
    for (const int64_t columns : {16, 48, 512}) {
      expect_stored_gradients<float>(rows, columns);
      expect_stored_gradients<double>(rows, columns);
      expect_stored_gradients<uint16_t>(rows, columns);
      expect_exponentials<float>(rows, columns);
      expect_exponentials<double>(rows, columns);
      expect_exponentials<uint16_t>(rows, columns);
    }
  }
}

TEST_F(GpuKernels, RowsOfWeightsAreThoseOfTheHost) {
  for (const int64_t columns : {1, 19, 512}) {
    const int64_t rows = 37, count = rows * columns;
    const auto values = drawn_as<float>(1, count, 1), along = drawn_as<float>(2, rows, 1);
    const auto halves = drawn_as<uint16_t>(3, count, 1);
    std::vector<uint16_t> rounded(count);
    std::vector<float> inverse(rows), out(values), sum(values);
    const DeviceArray<float> own_values(values), own_along(along), own_inverse(inverse), own_out(out), own_sum(sum);
    const DeviceArray<uint16_t> own_halves(halves), own_rounded(rounded);
    HostGrid grid;
    inverse_lengths_on(grid, values.data(), rows, columns, rounded.data(), inverse.data());
    add_along_on(grid, halves.data(), values.data(), along.data(), rows, columns, out.data());
    add_rounded_on(grid, halves.data(), count, sum.data());
    expect_started(gpu::round_rows(own_values.get(), rows, columns, own_rounded.get(), own_inverse.get(), nullptr));
    expect_started(
        gpu::add_along(own_halves.get(), own_values.get(), own_along.get(), rows, columns, own_out.get(), nullptr));
    expect_started(gpu::add_rounded(own_halves.get(), count, own_sum.get(), nullptr));
    EXPECT_EQ(own_rounded.values(), rounded);
    expect_near(own_inverse.values(), inverse, 8);
    expect_near(own_out.values(), out, 4);
    EXPECT_EQ(own_sum.values(), sum);
    expect_started(gpu::inverse_lengths(own_values.get(), rows, columns, own_inverse.get(), nullptr));
    expect_near(own_inverse.values(), inverse, 8);
  }
}

}  // namespace
}  // namespace tandem::kernels
