#pragma once
#include <functional>
#include <vector>

#include "tandem/pipeline/executor.h"
#include "tandem/pipeline/simulation.h"

namespace tandem::pipeline {

/// What the stages of a rank take for a micro-batch, in seconds and, with the memory meter, in bytes, in the order of
/// its stages: medians over `rounds` runs
/// of its list, after one that does not count, with nothing sent. `input`: what a stage takes, with values that do not
/// matter; which of them require a gradient counts. Gradients of outputs are 1. What is held between the actions is
/// what a step holds. Adds to the .grad of the stages' weights. The program must be one that prove() accepts. Not
/// collective; ranks that share a machine disturb each other as in a step if they measure at once.
std::vector<StageCost> measure_stages(const Program& program, int rank, Stages& stages,
                                      const std::function<memory::Flow(int stage, int micro_batch)>& input,
                                      int rounds = 2);

}  // namespace tandem::pipeline
