#pragma once
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::memory {

/// An element-wise activation y = f(x) of a model, in one of its forms. All forms of a function compute the same.
///
///             keeps for backward                backward
///   relu, leaky-relu (slope 0.01), elu, silu (swish)
///             x or y                            ATen's
///   *-naive   x and every intermediate value    autograd's, operation by operation
///   *-merged  x                                 f'(x) from x, composed of ATen's operations
///   *-fused   x                                 one pass, written over the incoming gradient where that is free
///
///   swish  x s(x), s(x) = 1 / (1 + e^-x)   Ramachandran et al. 2017 (arXiv:1710.05941)
///   mish   x tanh(ln(1 + e^x))             Misra 2019 (arXiv:1908.08681)
///   gelu   x P(x), P of the standard normal distribution; Hendrycks, Gimpel 2016 (arXiv:1606.08415), not the tanh form
///
/// x is floating, of any shape and device. Fused forms use Tandem's kernels for dense tensors of float32, float64 and
/// bfloat16 on the CPU, and on a GPU where the build has them, and ATen's otherwise. The incoming gradient is
/// overwritten only if nothing else holds it: no hook, no retained or captured gradient, no second reader, no view;
/// then backward needs no memory of its own (mish by ATen always takes a new tensor). Every form can be differentiated
/// twice.
struct Activation {
  std::string_view name;
  Tensor (*apply)(const Tensor& x);

  /// The same for an x that is used nowhere else and that its operator's backward does not need: may be overwritten.
  Tensor (*overwrite)(const Tensor& x);

  bool is_rectifier = false;  // max(x, 0), which some kernels do on their way
};

/// relu, leaky-relu, elu, silu, swish-naive, swish-merged, swish-fused, mish-naive, ..., gelu-fused.
const std::vector<std::string_view>& activation_names();

/// Throws SettingsError, naming `activation`.
const Activation& activation_of(std::string_view name);

/// gradient * f'(x) of swish-fused, in one pass without autograd, written over `gradient` where that is free.
Tensor swish_gradient(Tensor gradient, const Tensor& x);

}  // namespace tandem::memory
