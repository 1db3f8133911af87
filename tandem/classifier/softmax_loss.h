#pragma once
#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::classifier {

/// How a class's score is made from a feature x and the class's weight w.
///   normalised = false:  scale * w.x                           (plain softmax)
///   normalised = true:   scale * (cos(w, x) - [target] margin) (margin 0: normalised softmax; else CosFace /
///   AM-softmax)
struct Scoring {
  bool normalised = true;
  double scale = 1.0;
  double margin = 0.0;
};

/// Mean cross entropy of a softmax whose classes are spread over the ranks of `group`.
///
///           features [N, D], on all ranks            per row and rank:  max, sum of exponentials, target's score
///   rank 0  weight [C_0, D] ── scores [C_0, N] ──┐
///   rank 1  weight [C_1, D] ── scores [C_1, N] ──┼── one all_gather of 3 numbers a row ── loss, equal on all ranks
///   rank 2  weight [C_2, D] ── scores [C_2, N] ──┘
///
///   features  [N, D]        the whole batch, equal on all ranks, float32 or float64
///   weight    [C_local, D]  this rank's classes, same type
///   targets   [N]           int64 ids 0..C-1 over all ranks; -1 leaves the row out
///   first                   id of this rank's first class
///   returns   []            nats per counted row, equal on all ranks
/// Gradient: of the features only this rank's share (the sum over the ranks is whole: all_gather's gradient adds it
/// up); of the weight final. Backward communicates nothing. Collective. Extra memory: one buffer [C_local, N], kept
/// until backward. No normalised copy of the weight. Throws c10::ValueError (shapes, types), c10::IndexError (an id
/// outside of all ranks). Source: Shoeybi et al. 2019, Megatron-LM, section 3 (arXiv:1909.08053); Wang et al. 2018,
/// CosFace (arXiv:1801.09414), equation 4.
Tensor sharded_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                            const Scoring& scoring, comm::ProcessGroup& group);

/// The same loss with every rank's scores gathered on rank 0, which alone computes softmax and its gradient and sends
/// the shares back: what one writes first, kept as the baseline. Extra memory: [C, N] and more on rank 0.
Tensor naive_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                          const Scoring& scoring, comm::ProcessGroup& group);

/// Scores without margin, [C_local, N]; no gradient.
Tensor class_scores(const Tensor& features, const Tensor& weight, const Scoring& scoring);

}  // namespace tandem::classifier
