#include "tandem/kernels/gpu_kernels.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tandem/kernels/grid/abn_grid.h"
#include "tandem/kernels/grid/activation_grid.h"
#include "tandem/kernels/grid/block_code_grid.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

constexpr double kSlope = 0.01;

template <class S>
void expect_activation(Curve curve, int64_t count) {
  const auto x = drawn_as<S>(1, count, 9), gradient = drawn_as<S>(2, count, 1);
  auto y = x, out = gradient;
  HostGrid grid;
  activate_on(grid, curve, x.data(), count, y.data());
  differentiate_on(grid, curve, x.data(), gradient.data(), count, out.data());
  const DeviceArray<S> own_x(x), own_y(x), own_out(gradient);
  expect_started(gpu::activate(curve, own_x.get(), count, own_y.get(), nullptr));
  expect_started(gpu::differentiate(curve, own_x.get(), own_out.get(), count, own_out.get(), nullptr));
  expect_near(own_y.values(), y, 16);
  expect_near(own_out.values(), out, 64);
}

TEST_F(GpuKernels, ActivationsAreThoseOfTheHost) {
  for (const auto curve : {Curve::swish, Curve::mish, Curve::gelu}) {
    for (const int64_t count : {0, 1, 3, 257, 100003}) {
      expect_activation<float>(curve, count);
      expect_activation<double>(curve, count);
      expect_activation<uint16_t>(curve, count);
    }
  }
}

/// The same numbers on the host and on the device.
template <class S>
struct AbnPair {
  using T = AbnNumber<S>;

  Invertible kind;
  int64_t rows, channels;
  std::vector<S> z = drawn_as<S>(1, rows*channels, 5), gradient = drawn_as<S>(2, rows*channels, 1);
  std::vector<T> scale = drawn_as<T>(3, channels, 2), offset = drawn_as<T>(4, channels, 1),
                 slope = drawn_as<T>(5, channels, 1e-3);
  std::vector<uint8_t> sides = std::vector<uint8_t>(rows * side_bytes(channels));
  DeviceArray<S> own_z{z}, own_gradient{gradient};
  DeviceArray<T> own_scale{scale}, own_offset{offset}, own_slope{slope};
  DeviceArray<uint8_t> own_sides{sides};

  void expect_forward() {
    HostGrid grid;
    abn_forward_on(grid, AbnForward<T>{kind, T(kSlope), scale.data(), offset.data()}, rows, channels, z.data(),
                   sides.data());
    expect_started(gpu::abn_forward<S>({kind, T(kSlope), own_scale.get(), own_offset.get()}, rows, channels,
                                       own_z.get(), own_sides.get(), nullptr));
    expect_near(own_z.values(), z, 64);
    EXPECT_EQ(own_sides.values(), sides);
  }

  /// From the device's z.
  void expect_backward() {
    z = own_z.values();
    sides = own_sides.values();
    HostGrid grid;
    const AbnBackward<S> in{kind, T(kSlope), z.data(), gradient.data(), sides.data(), offset.data()};
    const AbnBackward<S> own{kind, T(kSlope), own_z.get(), own_gradient.get(), own_sides.get(), own_offset.get()};
    std::vector<double> sum(channels), product(channels);
    Scratch scratch(abn_scratch(rows, channels));
    abn_gradient_sums_on(grid, in, rows, channels, {}, sum.data(), product.data(), scratch.get());
    const DeviceArray<double> own_sum{sum}, own_product{product};
    const auto own_scratch = device_scratch(gpu::abn_scratch(rows, channels));
    expect_started(gpu::abn_gradient_sums<S>(own, rows, channels, {}, own_sum.get(), own_product.get(),
                                             own_scratch.get(), nullptr));
    const double units = (sizeof(S) == 8 ? 1e6 : 0x1p29 * 1e-5) * static_cast<double>(rows + 1);
    expect_near(own_sum.values(), sum, units);
    expect_near(own_product.values(), product, units * 10);
    abn_gradient_apply_on(grid, in, {scale.data(), slope.data(), offset.data()}, rows, channels, gradient.data());
    expect_started(gpu::abn_gradient_apply<S>(own, {own_scale.get(), own_slope.get(), own_offset.get()}, rows, channels,
                                              own_gradient.get(), nullptr));
    expect_near(own_gradient.values(), gradient, sizeof(S) == 8 ? 1e5 : 2e3);
  }
};

TEST_F(GpuKernels, NormalisationIsThatOfTheHost) {
  for (const auto kind : {Invertible::identity, Invertible::leaky_relu, Invertible::elu, Invertible::swish}) {
    for (const int64_t channels : {1, 8, 19, 64}) {
      for (const int64_t rows : {1, 257, 5003}) {
        AbnPair<float> single{kind, rows, channels};
        single.expect_forward();
        single.expect_backward();
        AbnPair<double> wide{kind, rows, channels};
        wide.expect_forward();
        wide.expect_backward();
        AbnPair<uint16_t> half{kind, rows, channels};
        half.expect_forward();
        half.expect_backward();
      }
    }
  }
}

TEST_F(GpuKernels, CodesHaveTheBitsOfTheHost) {
  for (const int64_t count : {1, 255, 257, 100003}) {
    const auto x = drawn_as<float>(1, count, 3);
    std::vector<int8_t> codes(count);
    std::vector<float> scales(code_blocks(count)), y(count);
    HostGrid grid;
    encode_on(grid, x.data(), count, codes.data(), scales.data());
    decode_on(grid, codes.data(), scales.data(), count, y.data());
    const DeviceArray<float> own_x(x), own_scales(scales), own_y(y);
    const DeviceArray<int8_t> own_codes(std::vector<int8_t>(count, 99));
    expect_started(gpu::encode(own_x.get(), count, own_codes.get(), own_scales.get(), nullptr));
    expect_started(gpu::decode(own_codes.get(), own_scales.get(), count, own_y.get(), nullptr));
    EXPECT_EQ(own_codes.values(), codes);
    EXPECT_EQ(own_scales.values(), scales);
    EXPECT_EQ(own_y.values(), y);
  }
}

}  // namespace
}  // namespace tandem::kernels
