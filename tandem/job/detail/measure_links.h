#pragma once
#include "tandem/comm/process_group.h"
#include "tandem/job/detail/plan_estimate.h"

namespace tandem::job {

/// What joins the ranks of a group: measured between rank 0 and its neighbour, and, where the launcher has started
/// ranks on several hosts, the first of the second host. A few MiB travel. Collective.
Links measure_links(comm::ProcessGroup& group);

}  // namespace tandem::job
