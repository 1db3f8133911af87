#pragma once
#include <memory>

#include "tandem/comm/process_group.h"
#include "tandem/memory/channel_statistics.h"

namespace tandem::parallel {

/// Makes the images of all ranks of `group` one batch for the statistics of batch normalisation (memory/batch_norm.h,
/// memory/inplace_abn.h, models::ModelOptions::ranks): torch.nn.SyncBatchNorm for C++.
///
/// The numbers travel through a group of their own, so their order does not depend on gradients that are summed at the
/// same time. Every rank of the group must run the same normalisations, forward and backward, in the same order: a rank
/// without images runs them on an empty tensor. Returns null for a group of one, whose batch is its own. Collective.
/// Errors: c10::DistBackendError if a rank does not come.
std::shared_ptr<memory::StatisticsExchange> share_statistics(comm::ProcessGroup& group,
                                                             flight::Where where = flight::Where::current());

}  // namespace tandem::parallel
