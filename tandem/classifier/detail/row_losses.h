#pragma once
#include "tandem/classifier/detail/block_softmax.h"
#include "tandem/comm/process_group.h"

// From each rank's numbers of a row to the loss.
namespace tandem::classifier::detail {

/// Over all ranks, [N] each.
struct RowNumbers {
  Tensor log_sum, target;  // of the exponentials; the target's score with margin
  Tensor total;            // of all scores; not defined without smoothing
  Tensor has_owner;        // bool: some rank has the target
};

/// The arguments that both forms of the loss check; throws c10::ValueError, c10::TypeError.
void check_arguments(const Tensor& features, const Tensor& weight, const Tensor& targets, const Scoring& scoring);

/// A part's numbers of each row, [1, 3, N] or with smoothing [1, 4, N]: the maximum, the sum of exp(score - maximum),
/// the target's score, or where the target is another part's the lowest number there is; the total.
Tensor pack(const BlockSoftmax::OwnNumbers& own, const LocalTargets& targets);

/// From those of all parts, [parts, 3 or 4, N].
RowNumbers merge_parts(const Tensor& all);

/// One all_gather of three numbers a row: this rank's maximum, its sum of exp(score - maximum), and the target's score,
/// or where that is another rank's the lowest number there is; with smoothing also the total. Collective.
RowNumbers merge_ranks(const BlockSoftmax::OwnNumbers& own, const LocalTargets& targets, comm::ProcessGroup& group);

/// Every counted target must be some rank's class. Throws c10::IndexError with the id and the row.
void check_owners(const Tensor& targets, const Tensor& has_owner);

/// 1 / counted, and 0 for rows that are left out, [N].
Tensor shares_of(const Tensor& targets, int64_t counted, const at::TensorOptions& options);

Tensor mean_loss(const RowNumbers& rows, const Tensor& share, double smoothing, int64_t classes);

}  // namespace tandem::classifier::detail
