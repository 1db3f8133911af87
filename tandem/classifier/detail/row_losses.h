#pragma once
#include "tandem/classifier/detail/own_softmax.h"
#include "tandem/comm/process_group.h"

// From each rank's numbers of a row to the loss.
namespace tandem::classifier::detail {

/// Over all ranks, [N] each.
struct RowNumbers {
  Tensor log_sum, target;  // of the exponentials; the target's score with margin
  Tensor total;            // of all scores; not defined without smoothing
};

/// The arguments that both forms of the loss check; throws c10::ValueError, c10::TypeError.
void check_arguments(const Tensor& features, const Tensor& weight, const Tensor& targets, const Scoring& scoring);

/// A part's numbers of each row, [1, 3, N] or with smoothing [1, 4, N]: the maximum, the sum of exp(score - maximum),
/// the target's score, or where the target is another part's the lowest number there is; the total.
Tensor pack(const OwnSoftmax::OwnNumbers& own, const LocalTargets& targets);

/// From those of all parts, [parts, 3 or 4, N]. Of a row whose target no part has, the target's score is NaN: so is the
/// loss, if the row counts.
RowNumbers merge_parts(const Tensor& all);

/// One all_gather of three numbers a row: this rank's maximum, its sum of exp(score - maximum), and the target's score,
/// or where that is another rank's the lowest number there is; with smoothing also the total. Collective.
RowNumbers merge_ranks(const OwnSoftmax::OwnNumbers& own, const LocalTargets& targets, comm::ProcessGroup& group);

/// Every counted target must be one of the classes of all ranks. Throws c10::IndexError with the id and the row.
void check_targets(const Tensor& targets, int64_t classes);

/// 1 / counted, and 0 for rows that are left out, [N] on the device of `options`.
Tensor shares_of(const Tensor& targets, int64_t counted, const at::TensorOptions& options);

Tensor mean_loss(const RowNumbers& rows, const Tensor& share, double smoothing, int64_t classes);

}  // namespace tandem::classifier::detail
