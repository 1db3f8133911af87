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

TEST(DeviceMemory, ASnapshotHoldsSegmentsAndHistory) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU here";
  record_device_history(at::kCUDA);
  const auto x = at::empty({1001}, at::device(at::kCUDA).dtype(at::kByte));
  const auto pickle = device_snapshot();
  EXPECT_EQ(pickle.substr(0, 1), "\x80");  // a pickle's first byte
  for (const auto* key : {"segments", "device_traces"}) EXPECT_NE(pickle.find(key), std::string::npos) << key;
}

}  // namespace
}  // namespace tandem::memory
