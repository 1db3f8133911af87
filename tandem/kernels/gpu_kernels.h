#pragma once
#include <cstdint>

#include "tandem/kernels/abn_kernels.h"
#include "tandem/kernels/activation_kernels.h"
#include "tandem/kernels/block_codes.h"
#include "tandem/kernels/grid/abn_channel_bodies.h"
#include "tandem/kernels/grid/exponent_bodies.h"
#include "tandem/kernels/grid/target_bodies.h"
#include "tandem/kernels/score_kernels.h"

/// The kernels of this folder on an NVIDIA GPU, with the contracts of their namesakes on the CPU. Arrays are in the
/// memory of the current device; structs of pointers are read before a function returns. Every function starts its work
/// on `stream`, a cudaStream_t (null: the default stream), without waiting and without allocating, and returns 0, or
/// the code of the error with which CUDA refused the launch: error_text() names it. Results are equal in every run.
///
/// S is float, double, or uint16_t holding bfloat16; T is float or double. `scratch`: device memory, aligned to 16
/// bytes, of as many bytes as a function ..._scratch() tells for the sizes at hand. Without CUDA in the build every
/// function but are_built() throws std::logic_error.
namespace tandem::kernels::gpu {

bool are_built();
const char* error_text(int error);

/// body(i) for each i < count, at once and in any order: AbnScaleBody and its like, by channels;
/// TileScaleBody, by columns; ExponentiateAgainBody, by packs; those of target_bodies.h.
template <class Body>
[[nodiscard]] int for_each(const Body& body, int64_t count, void* stream);

template <class S>
[[nodiscard]] int activate(Curve curve, const S* x, int64_t count, S* y, void* stream);
template <class S>
[[nodiscard]] int differentiate(Curve curve, const S* x, const S* gradient, int64_t count, S* out, void* stream);

// Moments are libtorch's: batch_norm_stats() gives the mean and the inverse deviation that AbnScaleBody wants.
//
//   forward   AbnScaleBody ─▶ abn_forward
//   backward  abn_gradient_sums ─▶ AbnParameterBody ─ terms added over ranks ─▶ AbnShiftBody ─▶ abn_gradient_apply

template <class S>
[[nodiscard]] int abn_forward(const AbnForward<AbnNumber<S>>& how, int64_t rows, int64_t channels, S* x, uint8_t* sides,
                              void* stream);

int64_t abn_scratch(int64_t rows, int64_t channels);
/// Sums are in double. Writes y and dy where `to` has places for them, for S = AbnNumber<S>; they may be those of z and
/// the gradient.
template <class S>
[[nodiscard]] int abn_gradient_sums(const AbnBackward<S>& in, int64_t rows, int64_t channels, const AbnUnfolded<S>& to,
                                    double* sum, double* product, void* scratch, void* stream);
template <class S>
[[nodiscard]] int abn_gradient_apply(const AbnBackward<S>& in, const AbnApply<AbnNumber<S>>& how, int64_t rows,
                                     int64_t channels, S* out, void* stream);

// Blocks of products. Two ways: add_block() and differentiate_block() store gradients; exponentiate_block()
// keeps E instead (exponent_bodies.h), from which gradients come by GEMMs.

/// For blocks of as many columns, and of as many rows or fewer.
template <class T>
int64_t score_scratch(int64_t rows, int64_t columns);

template <class T, class S>
[[nodiscard]] int add_block(const Block<T, S>& block, const RunningRows<T>& running, void* scratch, void* stream);
template <class T, class S>
[[nodiscard]] int differentiate_block(const Block<T, S>& block, const ShareRows<T>& shares, T filter, T* along_classes,
                                      T* along_samples, void* scratch, void* stream);

/// Writes E over the products of a tile, its exponents to `exponents` [columns], and adds its classes to `running`.
template <class T, class S>
[[nodiscard]] int exponentiate_block(const Block<T, S>& block, int32_t* exponents, const ExponentRows<T>& running,
                                     void* scratch, void* stream);

/// along[row] becomes -factors[row]^2 (along[row] + gradient[row] . weight[row]); rows of `columns` numbers.
template <class T, class S>
[[nodiscard]] int project_along(const S* gradient, const T* weight, const T* factors, int64_t rows, int64_t columns,
                                T* along, void* stream);
template <class T, class S>
[[nodiscard]] int add_along(const S* gradient, const T* weight, const T* along, int64_t rows, int64_t columns, T* out,
                            void* stream);
[[nodiscard]] int add_rounded(const uint16_t* values, int64_t count, float* sum, void* stream);
template <class T>
[[nodiscard]] int inverse_lengths(const T* values, int64_t rows, int64_t columns, T* out, void* stream);
[[nodiscard]] int round_rows(const float* values, int64_t rows, int64_t columns, uint16_t* rounded,
                             float* inverse_lengths, void* stream);

[[nodiscard]] int encode(const float* x, int64_t count, int8_t* codes, float* scales, void* stream);
[[nodiscard]] int decode(const int8_t* codes, const float* scales, int64_t count, float* x, void* stream);

}  // namespace tandem::kernels::gpu
