#pragma once
#include "tandem/job/job.h"

namespace tandem::job {

/// Checks what values are along the axes of the job's mesh, on a rank whose others are imagined, with two images of
/// zeros (layers/type_check.h). Does nothing with one rank along tensor, where no layer is divided. Throws
/// layers::TypeError, which names layer and axis. Time: about that of building the model and two images' forward. Not
/// collective.
void check_types(const Job& job, const DataShape& shape);

}  // namespace tandem::job
