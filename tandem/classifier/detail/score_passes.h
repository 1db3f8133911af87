#pragma once
#include "tandem/base/tensor.h"

// What is done to a block of products [rows, columns] between its GEMMs, on the calling thread: kernels for CPU
// tensors, libtorch's operators elsewhere. `factors` [rows] make products scores.
namespace tandem::classifier::detail {

/// How many threads work on blocks of such features: libtorch's where there are kernels, else 1.
int threads_for(const Tensor& features);

/// Over the classes that a lane has seen so far: [lanes, columns] each.
struct Running {
  Tensor maximum, sum, total;  // total is undefined when nobody wants it
};

Running start_running(const Tensor& features, int64_t lanes, int64_t columns, bool with_total);
void add_block(const Tensor& products, const Tensor& factors, int64_t lane, Running& running);

/// Scores above `filter` become 0; infinity: none do.
void drop_above(Tensor& products, const Tensor& factors, double filter);

/// [columns] each: maximum, sum of exp(score - maximum), and total.
Running merge_lanes(const Running& running);

/// A score's gradient is share * exp(score - log_sum) - floor. [columns] each.
struct Shares {
  Tensor log_sum, share, floor;
};

/// The products become their gradient, 0 where the score is above `filter`. Returns, for each class, the sum of score
/// times its gradient, [rows]; adds the same for each sample to `along_samples` [columns].
Tensor differentiate_block(Tensor& products, const Tensor& factors, double filter, const Shares& shares,
                           const Tensor& along_samples);

/// The passes of ExponentialSoftmax, on a device with kernels (kernels/grid/exponent_bodies.h). The first writes E over
/// the products, its `exponents` [columns] int32, and adds the classes to the running `exponent` and `sum` [columns];
/// the second, with known exponents, writes the classes' factors times E; the third `scale` [columns] of a block.
void exponentiate_block(Tensor& products, const Tensor& factors, const Tensor& exponents, const Tensor& exponent,
                        const Tensor& sum);
void exponentiate_again(Tensor& products, const Tensor& factors, const Tensor& exponents);
void scale_tile(const Tensor& exponents, const Tensor& log_sum, const Tensor& share, const Tensor& scale);

/// along[row] becomes -factors[row]^2 (along[row] + gradient[row] . weight[row]), on a device with kernels.
void project_along(const Tensor& gradient, const Tensor& weight, const Tensor& factors, Tensor& along);

/// out = gradient + along * weight, row by row; [rows, D], along [rows]. `gradient` may be in bfloat16, or be `out`.
void add_along(const Tensor& gradient, const Tensor& weight, const Tensor& along, Tensor& out);

/// sum += values in bfloat16.
void add_rounded(const Tensor& values, Tensor& sum);

/// 1 / max(length, 1e-12) of each row. On all threads.
Tensor inverse_lengths(const Tensor& rows);

/// The same into `inverse_lengths`, and the rows in bfloat16 into `rounded`.
void round_rows(const Tensor& rows, Tensor& rounded, Tensor& inverse_lengths);

}  // namespace tandem::classifier::detail
