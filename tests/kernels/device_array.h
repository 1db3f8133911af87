#pragma once
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "tandem/kernels/gpu_kernels.h"

namespace tandem::kernels {

/// Numbers in the memory of the current GPU.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes() + 1), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(memory_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return static_cast<T*>(memory_); }

  /// Waits for the device.
  std::vector<T> values() const {
    std::vector<T> result(count_);
    EXPECT_EQ(cudaMemcpy(result.data(), memory_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return result;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }

  void* memory_ = nullptr;
  size_t count_;
};

inline DeviceArray<char> device_scratch(int64_t bytes) {
  return DeviceArray<char>(std::vector<char>(static_cast<size_t>(bytes)));
}

/// Tests that are skipped where no GPU is, or no kernels for one.
class GpuKernels : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (!gpu::are_built()) GTEST_SKIP() << "built without kernels for GPUs";
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  }
};

inline void expect_started(int error) { ASSERT_EQ(error, 0) << gpu::error_text(error); }

/// Results of two machines, whose exponentials differ in their last places; bfloat16 may round them apart.
template <class S>
void expect_near(const std::vector<S>& own, const std::vector<S>& wanted, double units) {
  ASSERT_EQ(own.size(), wanted.size());
  for (size_t i = 0; i < own.size(); ++i) {
    const double value = widened(wanted[i]);
    EXPECT_NEAR(widened(own[i]), value,
                units * (sizeof(S) == 8 ? 0x1p-52 : 0x1p-23) * (1 + std::abs(value)) +
                    (sizeof(S) == 2 ? 0x1p-7 * std::abs(value) : 0))
        << i << " of " << own.size();
  }
}

}  // namespace tandem::kernels
