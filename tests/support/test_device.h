#pragma once

namespace tandem::test {

/// Gives this process eight devices of type at::kPrivateUse1, for the rest of it. They stand for GPUs where there are
/// none: the pointers of their tensors lead to no memory, so that host code that reads or writes elements ends with
/// SIGSEGV, and an operator that mixes devices throws c10::Error. Operators run on the CPU, on copies. Each device has
/// its own thread of autograd. A program that calls this should test nothing else: libtorch takes the process for one
/// that has an accelerator.
void install_test_device();

}  // namespace tandem::test
