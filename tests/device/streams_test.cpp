#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/device/test_device.h"

namespace tandem::test {
namespace {

using at::Tensor;

c10::Device device() { return {at::kPrivateUse1, 0}; }
c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(at::kPrivateUse1); }
DelayedStreams& streams() { return DelayedStreams::get(); }

class TestDevice : public testing::TestWithParam<Delays> {
 protected:
  void SetUp() override {
    install_test_device();
    streams().choose(GetParam());
  }
  void TearDown() override { streams().choose(Delays::none); }
};

std::string name_of(const testing::TestParamInfo<Delays>& info) {
  constexpr const char* kNames[] = {"none", "longest", "random"};
  return kNames[static_cast<int>(info.param)];
}

TEST_P(TestDevice, TellsOnTheHostAndOnMixtures) {
  const auto x = at::ones({3}, device());
  EXPECT_THROW(x + at::ones({3}), c10::Error);
  EXPECT_THROW(at::cat({x, at::ones({3})}), c10::Error);
  EXPECT_THROW(x.index({at::ones({1}, at::kLong)}), c10::Error);
  EXPECT_TRUE((x + at::ones({})).cpu().equal(at::full({3}, 2.0F)));
}

TEST_P(TestDevice, ComputesWhatTheCpuDoes) {
  const auto here = at::arange(12, at::kFloat).view({3, 4});
  const auto there = here.to(device());
  const auto both = [](const Tensor& x) {
    auto y = at::cat({x.t().matmul(x).softmax(1), x.t()}, 1);
    y[1].mul_(2);
    return at::where(y > 1, y.cumsum(0), y);
  };
  EXPECT_TRUE(both(there).cpu().equal(both(here)));
  EXPECT_EQ(there.sum().item<float>(), 66);
  EXPECT_EQ(there.nonzero().size(0), 11);
  EXPECT_TRUE(streams().take_findings().empty());
}

/// What one stream makes, and another one uses.
Tensor used_elsewhere(bool waits) {
  const auto other = guard().getStreamFromGlobalPool(device());
  const auto x = at::ones({4}, device());
  x.add_(1);
  if (waits) {
    c10::Event made(at::kPrivateUse1);
    made.record(guard().getStream(device()));
    made.block(other);
  }
  const c10::StreamGuard scope(other);
  x.record_stream(other);
  return (x * 10).cpu();
}

TEST_P(TestDevice, AnEventMakesAStreamWait) {
  EXPECT_TRUE(used_elsewhere(true).equal(at::full({4}, 20.0F)));
  EXPECT_TRUE(streams().take_findings().empty());
}

TEST_P(TestDevice, MemoryIsUsedAgainInTheOrderOfItsStream) {
  Tensor sum = at::zeros({8}, device());
  for (int i = 0; i < 10; ++i) sum += at::full({8}, float(i), device());
  EXPECT_TRUE(sum.cpu().equal(at::full({8}, 45.0F)));
  EXPECT_TRUE(streams().take_findings().empty());
}

TEST_P(TestDevice, ACopyThatIsToEndLater) {
  const auto x = at::full({4}, 3, device());
  const auto here = at::zeros({4});
  here.copy_(x, /*non_blocking=*/true);
  guard().synchronizeStream(guard().getStream(device()));
  EXPECT_TRUE(here.equal(at::full({4}, 3.0F)));
  EXPECT_EQ(streams().num_waits(), 1);
}

INSTANTIATE_TEST_SUITE_P(Delays, TestDevice, testing::Values(Delays::none, Delays::longest, Delays::random), name_of);

// The faults that the device is for. With the longest delays each is found, whatever the machine does.
class TestDeviceFinds : public testing::Test {
 protected:
  void SetUp() override {
    install_test_device();
    streams().choose(Delays::longest);
  }
  void TearDown() override { streams().choose(Delays::none); }
};

TEST_F(TestDeviceFinds, TheHostThatReads) {
  const auto x = at::ones({3}, device());
  EXPECT_DEATH(std::abs(*static_cast<const volatile float*>(x.const_data_ptr())), "");
}

TEST_F(TestDeviceFinds, AMissingWait) {
  EXPECT_FALSE(used_elsewhere(false).equal(at::full({4}, 20.0F)));
  const auto findings = streams().take_findings();
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0], "a copy to the host read numbers that were not there yet, or not any more");
}

TEST_F(TestDeviceFinds, APlantedMissingWait) {
  streams().plant(Fault::missing_wait, 0);
  EXPECT_FALSE(used_elsewhere(true).equal(at::full({4}, 20.0F)));
  EXPECT_FALSE(streams().take_findings().empty());
}

TEST_F(TestDeviceFinds, WorkOnTheWrongStream) {
  const auto x = at::ones({4}, device());
  streams().plant(Fault::wrong_stream, 0);
  x.add_(1);
  EXPECT_FALSE(x.cpu().equal(at::full({4}, 2.0F)));
  EXPECT_FALSE(streams().take_findings().empty());
}

TEST_F(TestDeviceFinds, MemoryThatAnotherStreamStillReads) {
  const auto other = guard().getStreamFromGlobalPool(device());
  Tensor sum = at::zeros({4}, device());
  {
    const auto x = at::ones({4}, device());
    c10::Event made(at::kPrivateUse1);
    made.record(guard().getStream(device()));
    made.block(other);
    const c10::StreamGuard scope(other);
    sum.add_(x);  // without record_stream()
  }
  at::full({4}, 7.0F, device()).cpu();  // in the memory of x
  c10::Event summed(at::kPrivateUse1);
  summed.record(other);
  summed.block(guard().getStream(device()));
  EXPECT_FALSE(sum.cpu().equal(at::ones({4})));
  EXPECT_FALSE(streams().take_findings().empty());
}

TEST_F(TestDeviceFinds, AHostThatDoesNotWait) {
  const auto x = at::full({4}, 3, device());
  const auto here = at::zeros({4});
  here.copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(here.equal(at::zeros({4})));
}

}  // namespace
}  // namespace tandem::test
