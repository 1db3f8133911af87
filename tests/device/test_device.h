#pragma once
#include "tests/device/delayed_streams.h"

namespace tandem::test {

/// Gives this process eight devices of type at::kPrivateUse1, for the rest of it. They stand for GPUs where there are
/// none:
///
/// - The pointers of their tensors lead to no memory, so that host code that reads or writes elements ends with
/// SIGSEGV.
/// - An operator that mixes devices throws c10::Error.
/// - They have streams and events, and do their work with the delays that are chosen (DelayedStreams::choose()). What a
///   program would read if all work were done at once is known too: where memory holds something else, a wait is
///   missing, or work is on the wrong stream, and DelayedStreams::take_findings() tells so.
/// - They have the kernels of kernels/gpu_kernels.h, whose bodies the CPU runs, index by index.
/// - Each device has its own thread of autograd.
///
/// Operators run on the CPU, on one thread. A program that calls this should test nothing else: libtorch takes the
/// process for one that has an accelerator.
void install_test_device();

}  // namespace tandem::test
