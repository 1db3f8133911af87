#pragma once
#include "tandem/parallel/gradient_hook.h"

namespace tandem::parallel {

/// PowerSGD: of each matrix M = gradient + error, the ranks exchange two narrow factors in place of its sum.
///
///   P = sum over ranks of M Q, orthonormal columns     Q = sum over ranks of Mᵀ P     sum ≈ P Qᵀ
///   n x r                                              m x r                          error = M - P Qᵀ / N, next step
///
/// Q starts the next step (warm start). n: size of the parameter's first dim; m: product of the others; r:
/// options.rank. Parameters with (n + m) r < n m / 2 are compressed; the others travel as they are. Wire of a bucket:
/// two all_reduce, of n r elements a matrix and the rest, and of m r elements a matrix. What a step leaves out is kept
/// in `error` and added to the next gradient, so no gradient is lost, but gradients are late: an approximation.
///
/// Memory: the errors, as many bytes as the compressed gradients, and the factors twice. Neither is part of a
/// checkpoint: a run that resumes starts with errors of zero. After a sum that is not finite, the errors are zero too.
/// Throws c10::ValueError, when made, if the parameters differ in type.
/// Source: Vogels, Karimireddy, Jaggi 2019, PowerSGD, algorithms 1 and 2 (arXiv:1905.13727).
std::unique_ptr<GradientHook> make_power_sum(const std::vector<Tensor>& parameters, const GradientHookOptions& options);

}  // namespace tandem::parallel
