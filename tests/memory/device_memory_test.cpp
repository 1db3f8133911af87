#include "tandem/memory/device_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tandem::memory {
namespace {

TEST(DeviceMemory, CountsWhatTensorsAskFor) {
  EXPECT_FALSE(device_bytes(at::kCPU));
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU here";
  reset_device_peak(at::kCUDA);
  const auto before = device_bytes(at::kCUDA).value();
  {
    const auto x = at::empty({1001}, at::device(at::kCUDA).dtype(at::kByte));
    EXPECT_EQ(device_bytes(at::kCUDA)->live, before.live + 1001);
  }
  EXPECT_EQ(device_bytes(at::kCUDA)->live, before.live);
  EXPECT_EQ(device_bytes(at::kCUDA)->peak, before.live + 1001);
}

}  // namespace
}  // namespace tandem::memory
