#pragma once

namespace tandem::test {

/// From now on the test device has the kernels of kernels/gpu_kernels.h, whose bodies the CPU runs, index by index.
void install_device_kernels();

}  // namespace tandem::test
