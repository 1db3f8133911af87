#pragma once
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/job/job.h"

// Where the stages of a job's pipeline begin.
namespace tandem::job {

/// With what the stages but the first begin, as pipeline.cut names it: as it says, by work, or with `measured` by what
/// the parts of the model's blocks take on this machine, of which each is made and run alone. Empty: there is one
/// stage. Not collective. Throws SettingsError: more stages than parts, a cut that names none.
std::vector<std::string> cut_of(const Job& job, const DataShape& shape);

/// With pipeline.cut=measured: sets the cut that rank 0 measures. The settings stay as they are: who goes on with them,
/// with as many stages or others, measures anew, and without this the stages are cut by work. Collective.
void settle_cut(Job& job, const DataShape& shape, comm::ProcessGroup& group);

/// The same as this process measures it.
void settle_cut(Job& job, const DataShape& shape);

}  // namespace tandem::job
