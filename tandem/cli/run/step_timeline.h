#pragma once
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/pipeline/simulation.h"
#include "tandem/report/step_chart.h"

namespace tandem::cli {

/// The last step of all ranks of a pipeline: of each rank, what it did, in seconds from the first action of any.
using StepTimeline = std::vector<std::vector<pipeline::Timed>>;

/// `own`: in seconds of this machine's steady clock; the clocks of several machines are compared when all ranks meet
/// here. On rank 0; empty elsewhere, and where no rank has done anything. Collective.
StepTimeline gather_timeline(const std::vector<pipeline::Timed>& own, comm::ProcessGroup& group);

/// As a chart. Its note tells the part of the ranks' time in which they do not compute.
report::StepChart chart_of(const StepTimeline& timeline);

/// As Chrome's tracing and Perfetto read it: a thread a rank, with events in microseconds and counters of bytes.
std::string trace_events_text(const StepTimeline& timeline);

}  // namespace tandem::cli
