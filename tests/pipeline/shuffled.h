#pragma once
#include <optional>
#include <random>

#include "tandem/pipeline/program.h"

namespace tandem::pipeline {

/// Moves some actions of some ranks, so that each still comes after what it needs on its own rank.
Program shuffled(Program program, std::mt19937& random);

/// The same of any schedule, on two to four ranks, with few micro-batches; `head`: as ScheduleSize has it.
Program random_program(std::mt19937& random, std::optional<double> head = {});

}  // namespace tandem::pipeline
