#pragma once
#include "tandem/comm/process_group.h"
#include "tandem/job/detail/plan_estimate.h"

namespace tandem::job {

/// What joins the ranks of a group, as rank 0 measures it; others return no figures. On one host by a sum over all
/// ranks, and the latency to a neighbour; where the launcher has started ranks on several hosts, by messages to a
/// neighbour and to the first rank of the second host. Some 4 MiB travel, a few times. Collective.
Links measure_links(comm::ProcessGroup& group);

}  // namespace tandem::job
