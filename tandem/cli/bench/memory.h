#pragma once
#include "tandem/cli/command.h"

namespace tandem::cli {

/// `tandem bench memory`: one training step of a model with each way to save activation memory, one after the other.
int run_memory_bench(const Arguments& arguments);
settings::Schema memory_bench_schema();

}  // namespace tandem::cli
