#pragma once
#include "tandem/base/tensor.h"
#include "tandem/memory/inplace_abn.h"

// The two passes of inplace_abn() without autograd: for callers that record them in their own way.
namespace tandem::memory {

/// What backward reads besides z.
struct AbnKept {
  kernels::Invertible activation;
  AbnForm form;
  bool training;
  Tensor numbers;                                  // [3, C] float64: g, bias, 1 / sqrt(variance + epsilon)
  Tensor sides;                                    // uint8 [rows, side_bytes(C)] of swish, else undefined
  std::shared_ptr<StatisticsExchange> ranks = {};  // of AbnState
  double rows = 0;                                 // of all ranks, if there are `ranks`
};

struct AbnGradients {
  Tensor input, weight, bias;  // of x's shape, [C], [C]
};

/// True for tensors of float32, float64 or bfloat16, where kernels are (base/device_kernels.h), with contiguous
/// parameters and statistics of x's type (bfloat16: of float32), x [N, C] or [N, C, H, W]. On a GPU the statistics must
/// be those of one rank.
bool abn_has_kernel(const Tensor& x, const AbnState& state);

/// Writes z over x, which must be contiguous, [N, C, H, W] in channels last, and have abn_has_kernel(). Training moves
/// the running statistics as inplace_abn() does.
AbnKept abn_forward(const Tensor& x, kernels::Invertible activation, const AbnState& state, bool training,
                    AbnForm form = AbnForm::one);

/// Writes over the gradient if nobody else holds it (pass it with std::move), else takes a new tensor of z's size. If
/// nobody else holds z either, that is overwritten too, which saves swish its second inversion, to the same bits.
AbnGradients abn_backward(const AbnKept& kept, Tensor gradient, Tensor z);

}  // namespace tandem::memory
