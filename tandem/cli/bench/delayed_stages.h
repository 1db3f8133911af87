#pragma once
#include "tandem/pipeline/program.h"
#include "tandem/pipeline/simulation.h"

namespace tandem::cli {

/// Seconds of a step on thread-ranks whose stages sleep for so long and compute next to nothing: the second of two
/// steps, from when all ranks begin to when the last has ended. `costs`: of each stage, in seconds. The program must be
/// one that prove() accepts.
double run_delayed(const pipeline::Program& program, const std::vector<pipeline::StageCost>& costs);

}  // namespace tandem::cli
