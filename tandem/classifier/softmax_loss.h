#pragma once
#include <optional>
#include <vector>

#include "tandem/base/rows.h"
#include "tandem/base/tensor.h"
#include "tandem/classifier/class_sampler.h"
#include "tandem/classifier/scoring.h"
#include "tandem/comm/process_group.h"

namespace tandem::classifier {

/// How the scores are worked out; but for bf16 no result depends on it.
struct BlockOptions {
  int64_t keep_bytes = 0;  // forward's products that backward need not compute again, a rank
  int64_t rows = 0;        // classes of a block; 0: as many as a core's cache holds
  bool bf16 = false;       // products in bfloat16, sums in float32; the targets' own products in float32
};

struct LossOptions {
  BlockOptions blocks = {};
  /// Called in backward when the gradient of some rows of the weight is final and nothing reads them any more: it may
  /// change them. No gradient of the weight is kept then.
  RowUpdate update = {};
  std::optional<ClassSample> sample = {};  // the classes that are scored; nothing: all
};

/// Mean cross entropy of a softmax whose classes are spread over the ranks of `group`.
///
///           features [N, D], on all ranks            per row and rank:  max, sum of exp, target's score
///   rank 0  weight [C_0, D] ── scores [C_0, N] ──┐
///   rank 1  weight [C_1, D] ── scores [C_1, N] ──┼── one all_gather of 3 numbers a row ── loss, equal on all ranks
///   rank 2  weight [C_2, D] ── scores [C_2, N] ──┘
///
///   features  [N, D]        the whole batch, equal on all ranks, float32 or float64
///   weight    [C_local, D]  this rank's classes, same type
///   targets   [N]           int64 ids 0..C-1 over all ranks; -1 leaves the row out; a device they are on is waited for
///   first                   id of this rank's first class
///   classes   C             over all ranks; label smoothing needs it
///   returns   []            nats per counted row, equal on all ranks
/// The scores of a block of classes live only while the block is worked on. Gradient: of the features only this rank's
/// share (the sum over the ranks is whole: all_gather's gradient adds it up); of the weight final. Backward
/// communicates nothing. Collective. Extra memory: of each thread a block of about 1 MiB and a gradient of the
/// features, keep_bytes, 4 bytes a class (normalised weight), a copy of the features, and some numbers a row; no
/// normalised copy of the weight; on a device, for which nobody waits, a block of 64 MiB, 112 bytes a row for the
/// targets, and 4 bytes a row and block. Label smoothing sends a fourth number a row. With a sample the softmax is over
/// its classes alone, label smoothing is refused, and the weight's gradient is a sparse tensor [C_local, D] of the
/// sampled rows. Throws c10::ValueError (shapes, types, scoring), c10::IndexError (an id outside of all ranks),
/// c10::NotImplementedError for second derivatives. Source: Shoeybi et al. 2019, Megatron-LM, section 3
/// (arXiv:1909.08053); Wijmans et al. 2024, Cut Your Losses (arXiv:2411.09009); the margins: scoring.h.
Tensor sharded_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                            int64_t classes, const Scoring& scoring, comm::ProcessGroup& group,
                            const LossOptions& options = {});

/// The same loss with every rank's scores gathered on rank 0, which alone computes softmax and its gradient and sends
/// the shares back: what one writes first, kept as the baseline. Extra memory: [C, N] and more on rank 0.
///   counts  classes of every rank, in rank order
Tensor naive_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
                          const std::vector<int64_t>& counts, const Scoring& scoring, comm::ProcessGroup& group);

/// Scores without margin, [C_local, N]; no gradient.
Tensor class_scores(const Tensor& features, const Tensor& weight, const Scoring& scoring);

}  // namespace tandem::classifier
