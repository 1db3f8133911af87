#include <gtest/gtest.h>

#include <vector>

#include "tandem/kernels/gpu_kernels.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/target_case.h"

namespace tandem::kernels {
namespace {

constexpr Margin kMargin = {.factor = 1.5, .angle = 0.7, .cosine = 0.2, .softening = 0.5};

/// Targets on the host and on the device.
template <class S>
struct CasePair {
  using T = AbnNumber<S>;

  explicit CasePair(int64_t count) : host(count) {}

  TargetEntries<T, S> entries() const {
    return {rows.get(), places.get(), host.kFirst, {products.get(), factors.get(), host.block_rows, host.columns}};
  }

  void expect_equal() const {
    expect_near(products.values(), host.products, 64);
    expect_near(flat(targets.values()), flat(host.targets), 256);
  }

  template <class Body>
  void run(const Body& on_host, const Body& on_device, int64_t count) {
    HostGrid().for_each(count, on_host);
    expect_started(gpu::for_each(on_device, count, nullptr));
  }

  TargetCase<S> host;
  DeviceArray<int64_t> rows{host.rows}, places{host.places}, starts{host.starts};
  DeviceArray<S> products{host.products};
  DeviceArray<T> factors{host.factors};
  DeviceArray<TargetNumbers> targets{host.targets};
};

template <class S>
void expect_values(int64_t count, const Margin& margin, bool has_product, bool leaves_out) {
  using T = AbnNumber<S>;
  CasePair<S> both(count);
  auto& host = both.host;
  using Score = ScoreTargetBody<T, S>;
  both.run(Score{host.entries(), host.targets.data(), margin, host.kScale, has_product},
           Score{both.entries(), both.targets.get(), margin, host.kScale, has_product}, count);
  both.expect_equal();
  using Put = PutTargetBody<T, S>;
  both.run(Put{host.entries(), host.targets.data(), leaves_out}, Put{both.entries(), both.targets.get(), leaves_out},
           count);
  both.expect_equal();
  using Clear = ClearTargetBody<T, S>;
  both.run(Clear{host.entries()}, Clear{both.entries()}, count);
  both.expect_equal();
}

template <class S>
void expect_sums(int64_t count, bool has_total) {
  using T = AbnNumber<S>;
  CasePair<S> both(count);
  auto& host = both.host;
  std::vector<T> maximum = drawn_as<T>(11, host.columns, 4), sum(host.columns, 2), total(host.columns, 3);
  const DeviceArray<T> own_maximum(maximum), own_sum(sum), own_total(total);
  const RunningRows<T> sums{maximum.data(), sum.data(), has_total ? total.data() : nullptr},
      own_sums{own_maximum.get(), own_sum.get(), has_total ? own_total.get() : nullptr};
  both.run(AddTargetBody<T>{host.rows.data(), host.targets.data(), sums},
           AddTargetBody<T>{both.rows.get(), both.targets.get(), own_sums}, count);
  EXPECT_EQ(own_maximum.values(), maximum);
  expect_near(own_sum.values(), sum, 16);
  expect_near(own_total.values(), total, 4);
  both.run(TargetLineBody<T>{host.rows.data(), host.targets.data(), total.data()},
           TargetLineBody<T>{both.rows.get(), both.targets.get(), own_total.get()}, count);
  EXPECT_EQ(own_total.values(), total);
}

template <class S>
void expect_gradients(int64_t count, bool of_features, bool of_weight) {
  using T = AbnNumber<S>;
  CasePair<S> both(count);
  auto& host = both.host;
  using Read = ReadTargetGradientBody<T, S>;
  both.run(Read{host.entries(), host.targets.data()}, Read{both.entries(), both.targets.get()}, count);
  EXPECT_EQ(flat(both.targets.values()), flat(host.targets));

  const auto log_sum = drawn_as<T>(11, host.columns, 3), share = drawn_as<T>(12, host.columns, 1);
  const DeviceArray<T> own_log_sum(log_sum), own_share(share);
  const ShareRows<T> shares{log_sum.data(), share.data(), share.data()},
      own_shares{own_log_sum.get(), own_share.get(), own_share.get()};
  both.run(TargetGradientBody<T>{host.rows.data(), host.targets.data(), shares, 0.1},
           TargetGradientBody<T>{both.rows.get(), both.targets.get(), own_shares, 0.1}, count);
  both.expect_equal();

  auto classes = drawn_as<T>(13, host.block_rows, 1);
  auto rows = drawn_as<double>(14, host.columns, 1);
  const DeviceArray<T> own_classes(classes);
  const DeviceArray<double> own_rows(rows);
  using Put = PutTargetGradientBody<T, S>;
  both.run(
      Put{host.entries(), host.targets.data(), host.starts.data(), of_features, of_weight, classes.data(), rows.data()},
      Put{both.entries(), both.targets.get(), both.starts.get(), of_features, of_weight, own_classes.get(),
          own_rows.get()},
      host.class_count());
  both.expect_equal();
  expect_near(own_classes.values(), classes, 256);
  expect_near(own_rows.values(), rows, 256);
}

template <class S>
void expect_targets(int64_t count) {
  for (const bool flag : {false, true}) {
    expect_values<S>(count, {}, flag, !flag);
    expect_values<S>(count, kMargin, flag, flag);
    expect_sums<S>(count, flag);
    for (const bool of_weight : {false, true}) expect_gradients<S>(count, flag, of_weight);
  }
}

TEST_F(GpuKernels, TargetsAreThoseOfTheHost) {
  for (const int64_t count : {0, 1, 7, 257, 1000}) {
    expect_targets<float>(count);
    expect_targets<double>(count);
    expect_targets<uint16_t>(count);
  }
}

}  // namespace
}  // namespace tandem::kernels
