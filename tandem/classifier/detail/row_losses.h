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

/// One all_gather of three numbers a row: this rank's maximum, its sum of exp(score - maximum), and the target's score,
/// or where that is another rank's the lowest number there is; with smoothing also the total. Collective.
RowNumbers merge_ranks(const BlockSoftmax::OwnNumbers& own, const LocalTargets& targets, comm::ProcessGroup& group);

/// Every counted target must be some rank's class. Throws c10::IndexError with the id and the row.
void check_owners(const Tensor& targets, const Tensor& has_owner);

/// 1 / counted, and 0 for rows that are left out, [N].
Tensor shares_of(const Tensor& targets, int64_t counted, const at::TensorOptions& options);

Tensor mean_loss(const RowNumbers& rows, const Tensor& share, double smoothing, int64_t classes);

}  // namespace tandem::classifier::detail
