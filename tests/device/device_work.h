#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace tandem::test {

using Tensors = std::vector<at::Tensor>;

/// A computation on tensors of the host. It may write to its inputs; results may be undefined.
using Body = std::function<Tensors(const Tensors& inputs)>;

/// Gives `body` to the current stream of the inputs' device, and returns what it will make, at once. It is done twice:
/// now, on what the inputs will hold when all earlier work is done, which tells the results' sizes, and when the stream
/// comes to it, on what they hold then. Inputs on the CPU are copied first. `is_drawn`: `body` draws random numbers,
/// which are those of now. `written`: inputs that may get another size.
Tensors give_work(const std::string& name, const Tensors& inputs, const std::vector<bool>& written, bool is_drawn,
                  const Body& body);

/// Waits for the current stream of x's device. If x does not hold what it would if all work had been done in time, this
/// is noted (DelayedStreams::note()).
void wait_for(const at::Tensor& x, const std::string& name);

/// to = from, of which one is on the CPU or both are on devices. Copies to the CPU wait; copies from it read it now. If
/// `later`, the CPU's memory is read or written when the stream comes to it.
void copy_on_device(const at::Tensor& from, const at::Tensor& to, bool later);

}  // namespace tandem::test
