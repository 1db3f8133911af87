#pragma once
#include "tandem/classifier/detail/lane.h"
#include "tandem/classifier/detail/own_softmax.h"

namespace tandem::classifier::detail {

/// BlockSoftmax on a device with kernels, with neither a block's scores nor their gradients in memory, and with fewer
/// passes over a block: over its products E is written, whose powers of two k are known for each block and sample.
///
///   E = 2^(log2(e) * score - k)      share * exp(score - log_sum) = c * E, with a number c for each sample
///
///   forward    block of weight ── GEMM ── products ── k ── E ── sum of each row
///   backward   block of weight ── GEMM ── products ── f E ──┬── GEMM ── times c ── adds to features' gradient [N, D]
///                                                           └── GEMM with c times features ── weight's gradient
///
/// f: a class's factor, 1 divided by the length of its weight where that is normalised. Where a length is divided out,
/// the gradient along it goes by a product of rows, of [D] each, where BlockSoftmax sums over a block. The targets'
/// entries of E are 0: what these give to the gradients is added in float32 or float64.
///
/// Kept for backward: the first blocks' E as long as they fit into keep_bytes, and 4 bytes for each block and sample.
class ExponentialSoftmax final : public OwnSoftmax {
 public:
  using OwnSoftmax::OwnSoftmax;

  /// Not for label smoothing, nor a filter of scores: both want the scores themselves.
  static bool suits(const Tensor& features, const Tensor& weight, const Scoring& scoring);

  OwnNumbers forward(const Tensor& features, const Tensor& weight) override;
  std::pair<Tensor, Tensor> backward(const Tensor& features, const Tensor& weight, const Tensor& log_sum,
                                     const Tensor& share, int64_t classes, const RowUpdate& update,
                                     bool of_features) override;

 private:
  class Gradients;
  struct Sums {
    Tensor exponent, sum;  // [columns]: kernels::ExponentRows
  };

  Sums start_sums(const Tensor& features) const;
  Running running_of(const Sums& sums) const;
  /// f E of a block, with 0 for the targets.
  Tensor exponentials(const Lane& lane, const Tensor& entering, const Tensor& inputs, const Tensor& factors,
                      ClassRange classes, int64_t tile);

  Tensor exponents_;  // [blocks, columns] int32
};

}  // namespace tandem::classifier::detail
